"""What the functions return: readable in a console, a table in a notebook."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from foreword.formatting import cell


class Result:
    """Facts, and perhaps a table, as text and as HTML."""

    def _facts(self) -> Mapping[str, Any]:
        """Return names and values, the most important first."""
        return {}

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        """Return the rows of the table, by column; none for no table."""
        return ()

    def __repr__(self) -> str:
        facts = {name: cell(value) for name, value in self._facts().items() if value is not None}
        width = max(map(len, facts), default=0)
        lines = [type(self).__name__, *(f"  {n:<{width}}  {v}" for n, v in facts.items())]
        if rows := self._rows():
            columns = list(rows[0])
            cells = [columns, *([cell(row.get(c)) for c in columns] for row in rows)]
            widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
            lines.append("")
            lines += [
                "  " + "  ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)).rstrip()
                for line in cells
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(cell(value))}</td></tr>"
            for name, value in self._facts().items()
            if value is not None
        )
        page = f"<b>{type(self).__name__}</b><table>{facts}</table>"
        if rows := self._rows():
            columns = list(rows[0])
            head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
            body = "".join(
                "<tr>"
                + "".join(f"<td>{html.escape(cell(row.get(column)))}</td>" for column in columns)
                + "</tr>"
                for row in rows
            )
            page += f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return page
