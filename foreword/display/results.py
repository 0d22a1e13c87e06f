"""What a verb returns: tables, facts and lines that a terminal, a console and a notebook show.

class Scores(Result):
    def tables(self) -> Sequence[Part]:
        return [ResultTable(self.rows, "scores"), Facts({"saved to": self.file}), "± over 3 seeds"]
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from foreword.disk import stored
from foreword.disk.credentials import masked
from foreword.display import lines, tables
from foreword.formatting import cell

LONGEST_CELL, LONGEST_FACT = 60, 400  # characters; what is longer is cut outside of a terminal


@dataclass(frozen=True)
class ResultTable:
    """Rows by column.

    Attributes:
        rows: cells by the name of their column; all have the columns of the first.
        title: above the table.
        keys: number of first columns that tell the rows apart; 0 to find out.
    """

    rows: Sequence[Mapping[str, Any]]
    title: str = ""
    keys: int = 0

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.rows[0]) if self.rows else []


class Facts(dict[str, Any]):
    """Names and values, the most important first; those that are None are not shown."""


class Definitions(dict[str, str]):
    """Names with a text beside each, wrapped to the window."""


class Text(str):
    """A text on the standard output, such as one that was generated; other lines are remarks."""


class Remark(str):
    """A line that the plain values have too, so that `--json` prints none."""


class Shown(Remark):
    """A remark that was shown during the work, so that the command does not repeat it."""


class Heading(Text):
    """A text above what follows."""


@dataclass(frozen=True)
class TokenRow:
    """The pieces of a text, side by side.

    Attributes:
        label: before them.
        pieces: the tokens as readers see them.
        styles: the style of each piece; default: neighbours in different colours.
        below: as many pieces, each below its own.
    """

    label: str
    pieces: Sequence[str]
    styles: Sequence[str] = ()
    below: TokenRow | None = None

    @property
    def rows(self) -> Sequence[TokenRow]:
        """It, and what is below."""
        return [self, *(self.below.rows if self.below is not None else [])]


Part = ResultTable | Facts | Definitions | TokenRow | Text | str


class Result:
    """What a verb returns; a result that stands for a folder has `__fspath__`."""

    @property
    def status(self) -> int:
        """The exit status of the command."""
        return 0

    def tables(self) -> Sequence[Part]:
        """Return what is shown: tables, facts and lines, in this order."""
        return []

    def data(self) -> Any:
        """Return what `--json` prints, as plain values; by default the fields that are plain."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def __repr__(self) -> str:
        shown = [type(self).__name__]
        for part in self.tables():
            if isinstance(part, ResultTable):
                shown += ["", *_grid(part)]
            elif isinstance(part, TokenRow):
                shown += [f"  {row.label}  {' '.join(row.pieces)}" for row in part.rows]
            elif isinstance(part, dict):
                facts = _facts(part)
                width = max(map(len, facts), default=0)
                shown += [f"  {name:<{width}}  {value}" for name, value in facts.items()]
            else:
                shown.append(part if isinstance(part, Text) else f"  {_line(part, LONGEST_FACT)}")
        return "\n".join(shown)

    def _repr_html_(self) -> str:
        page = f"<b>{type(self).__name__}</b>"
        for part in self.tables():
            if isinstance(part, ResultTable):
                head = "".join(f"<th>{html.escape(c)}</th>" for c in _cells(part.columns))
                body = "".join(
                    "<tr>"
                    + "".join(f"<td>{html.escape(c)}</td>" for c in _row(part, row))
                    + "</tr>"
                    for row in part.rows
                )
                title = f"<caption>{html.escape(part.title)}</caption>" if part.title else ""
                page += f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            elif isinstance(part, TokenRow):
                for row in part.rows:
                    page += f"<p>{html.escape(row.label)}: {html.escape(' '.join(row.pieces))}</p>"
            elif isinstance(part, dict):
                rows = "".join(
                    f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
                    f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
                    for name, value in _facts(part).items()
                )
                page += f"<table>{rows}</table>"
            elif isinstance(part, Text):
                page += f"<pre>{html.escape(part)}</pre>"
            else:
                page += f"<p>{html.escape(_line(part, LONGEST_FACT))}</p>"
        return page


@dataclass(frozen=True, repr=False)
class Output(Result):
    """A result without methods of its own.

    Attributes:
        parts: what is shown.
        content: the same as plain values.
    """

    parts: Sequence[Part]
    content: Any

    def tables(self) -> Sequence[Part]:
        """Return what is shown."""
        return self.parts

    def data(self) -> Any:
        """Return the plain values."""
        return self.content


@dataclass(frozen=True, repr=False)
class SavedResult(Result):
    """A result that is saved in a file, which reports show.

    Attributes:
        file: where it is saved.
        content: what was saved: `rows`, `notes`, ...
    """

    file: Path
    content: Mapping[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table."""
        return [dict(row) for row in self.content["rows"]]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the figures has to know, a line each."""
        return tuple(self.content.get("notes", ()))

    def shown_rows(self) -> Sequence[Mapping[str, Any]]:
        """Return the rows as people read them."""
        return self.rows

    def tables(self) -> Sequence[Part]:
        """Return the table, what a reader has to know, and where it is saved."""
        table = ResultTable(self.shown_rows(), self.content.get("title", ""))
        return [table, *remarks(self.notes), Remark(f"saved to {self.file}")]

    def data(self) -> Any:
        """Return what was saved."""
        return self.content


def remarks(lines: Iterable[str]) -> list[Remark]:
    """Return lines as remarks; warnings were shown before the work."""
    return [(Shown if "warning: " in line else Remark)(line) for line in lines]


def spaced(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with words in the names of its columns."""
    return {name.replace("_", " "): value for name, value in row.items()}


def show(result: Result, *, as_json: bool = False) -> None:
    """Print a result: its content on the standard output, remarks on the error stream.

    Args:
        result: the result.
        as_json: print its plain values in place of tables, facts and texts.
    """
    if as_json:
        sys.stdout.write(stored.to_json(result.data(), indent=1) + "\n")
    for part in result.tables():
        if isinstance(part, Shown):
            continue
        if as_json and isinstance(part, ResultTable | TokenRow | dict | Text | Remark):
            continue
        if isinstance(part, ResultTable):
            rows = [[row.get(column) for column in part.columns] for row in part.rows]
            tables.table(part.title, part.columns, rows)
        elif isinstance(part, Facts):
            tables.facts({name: value for name, value in part.items() if value is not None})
        elif isinstance(part, TokenRow):
            tables.tokens([(row.label, row.pieces, row.styles) for row in part.rows])
        elif isinstance(part, Definitions):
            tables.definitions(part)
        elif isinstance(part, Text):
            style = "bold" if isinstance(part, Heading) else None
            tables.out.print(part, style=style)
        else:
            lines.say(part)


def _grid(table: ResultTable) -> list[str]:
    """Return a table as lines of text."""
    cells = [_cells(table.columns), *(_row(table, row) for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = [
        "  " + "  ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
    return [f"  {table.title}", *rows] if table.title else rows


def _row(table: ResultTable, row: Mapping[str, Any]) -> list[str]:
    return _cells(map(row.get, table.columns))


def _facts(facts: Mapping[str, Any]) -> dict[str, str]:
    return {n: _line(value, LONGEST_FACT) for n, value in facts.items() if value is not None}


def _cells(values: Iterable[Any]) -> list[str]:
    return [_line(value, LONGEST_CELL) for value in values]


def _line(value: Any, most: int) -> str:
    """Return a value's text in one line of at most `most` characters."""
    whole = masked(cell(value))
    text = re.sub(r"\s*[\n\r\v\f\t\x85\u2028\u2029]\s*", " ", whole[: 2 * most])
    is_cut = len(text) > most or len(whole) > 2 * most
    return f"{text[: most - 1]}…" if is_cut else text
