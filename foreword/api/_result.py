"""What the functions return: readable in a console, a table in a notebook."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from foreword.credentials import masked
from foreword.formatting import cell

LONGEST_CELL, LONGEST_FACT = 60, 400  # characters; what is longer is cut


class Result:
    """Facts, and perhaps a table, as text and as HTML."""

    def _facts(self) -> Mapping[str, Any]:
        """Return names and values, the most important first."""
        return {}

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        """Return the rows of the table, by column; none for no table."""
        return ()

    def _tables(self) -> Sequence[Sequence[Mapping[str, Any]]]:
        """Return the rows of each table; by default of one, or of none."""
        return [rows] if (rows := self._rows()) else []

    def __repr__(self) -> str:
        values = {name: value for name, value in self._facts().items() if value is not None}
        facts = {name: _line(value, LONGEST_FACT) for name, value in values.items()}
        width = max(map(len, facts), default=0)
        lines = [type(self).__name__, *(f"  {n:<{width}}  {v}" for n, v in facts.items())]
        for rows in self._tables():
            columns = list(rows[0])
            cells = [_cells(columns), *(_cells(map(row.get, columns)) for row in rows)]
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
            f"<td style='text-align:left'>{html.escape(_line(value, LONGEST_FACT))}</td></tr>"
            for name, value in self._facts().items()
            if value is not None
        )
        page = f"<b>{type(self).__name__}</b><table>{facts}</table>"
        for rows in self._tables():
            columns = list(rows[0])
            head = "".join(f"<th>{html.escape(column)}</th>" for column in _cells(columns))
            body = "".join(
                "<tr>"
                + "".join(f"<td>{html.escape(text)}</td>" for text in _cells(map(row.get, columns)))
                + "</tr>"
                for row in rows
            )
            page += f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return page


def _cells(values: Iterable[Any]) -> list[str]:
    return [_line(value, LONGEST_CELL) for value in values]


def _line(value: Any, most: int) -> str:
    """Return a value's text in one line of at most `most` characters."""
    whole = masked(cell(value))
    text = re.sub(r"\s*[\n\r\v\f\t\x85\u2028\u2029]\s*", " ", whole[: 2 * most])
    is_cut = len(text) > most or len(whole) > 2 * most
    return f"{text[: most - 1]}…" if is_cut else text
