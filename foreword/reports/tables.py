"""Tables that fit the page: split where they are too wide, a list of values on narrow screens."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from foreword.formatting import cell, column_groups, key_columns

PAGE = 910  # pixels inside a card on the widest page; see `style.py`
PER_CHARACTER, BETWEEN = 8.2, 14  # pixels: a character of the table's font, the space of a column
WIDEST = 28  # characters that a column of text is given; longer text wraps


@dataclass(frozen=True)
class Table:
    """A table as text.

    Attributes:
        rows: the cells of each row, one per column.
        is_number: which columns hold numbers, aligned to the right and never wrapped.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    is_number: Sequence[bool]

    @classmethod
    def of_records(cls, records: Sequence[Mapping[str, Any]]) -> Table:
        """Return flat records as a table; columns in order of first occurrence."""
        keys = list(dict.fromkeys(key for record in records for key in record))
        values = [[record.get(key) for key in keys] for record in records]
        is_number = [
            all(isinstance(value, int | float | None) for value in column)
            for column in zip(*values, strict=True)
        ]
        names = [str(key).replace("_", " ") for key in keys]
        return cls(names, [[cell(value) for value in row] for row in values], is_number)

    def width(self, column: int) -> float:
        """Return the pixels that a column is given, approximately."""
        name = max(map(characters, self.columns[column].split()), default=0)
        longest = max((characters(row[column]) for row in self.rows), default=0)
        if not self.is_number[column]:
            longest = min(longest, WIDEST)
        return max(name, longest) * PER_CHARACTER + BETWEEN

    def parts(self, page: float = PAGE) -> list[list[int]]:
        """Return the columns of each table to show: one, or several that all begin with the keys.

        Args:
            page: pixels that a table may be wide.
        """
        widths = [self.width(column) for column in range(len(self.columns))]
        return column_groups(widths, page, key_columns(self.rows))

    def html(self) -> str:
        """Return the table in as many parts as it needs, each in a card."""
        return "".join(f'<div class="card">{self._part(columns)}</div>' for columns in self.parts())

    def _part(self, columns: Sequence[int]) -> str:
        kinds = ["n" if is_number else "t" for is_number in self.is_number]
        head = "".join(header(self.columns[c], f'class="{kinds[c]}" ') for c in columns)
        rows = ("".join(self._cell(row, c, kinds[c]) for c in columns) for row in self.rows)
        lines = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"

    def _cell(self, row: Sequence[str], column: int, kind: str) -> str:
        """Return a cell; on narrow screens it has its own line, after its name."""
        name = escape(self.columns[column], quote=True)
        return f'<td class="{kind}" data-name="{name}">{escape(row[column])}</td>'


def header(name: str, attributes: str = "") -> str:
    """Return the header of a column; a cell without a name is none."""
    return f'<th {attributes}scope="col">{escape(name)}</th>' if name else "<td></td>"


def characters(text: str) -> int:
    """Return the width of a text in Latin characters; Korean and Chinese ones count twice."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def key_value_table(values: Mapping[str, Any]) -> str:
    """Return nested values as a table of names and values."""
    rows = [
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in _flat(values)
    ]
    return f'<table class="pairs"><tbody>{"".join(rows)}</tbody></table>' if rows else ""


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in values.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}: ")
        elif isinstance(value, list):
            yield name, ", ".join(map(cell, value))
        elif value is not None:
            yield name, cell(value)
