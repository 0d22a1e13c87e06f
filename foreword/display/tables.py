"""Tables and facts on the standard output."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from foreword.formatting import cell

out = Console(highlight=False, soft_wrap=True)
LONGEST, BORDER = 24, 3  # characters of a cell kept on one line; characters of a column's border
COLOURS = ("black on bright_cyan", "black on bright_yellow", "black on bright_green")
NARROW = 60  # a window of fewer characters shows a table that does not fit as a list


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table, with numbers aligned to the right and texts to the letter.

    A table too wide for the window continues below, with the first columns repeated that tell its
    rows apart; in a narrow window each row is a list.
    """
    texts = [[cell(value) for value in row] for row in rows]
    cells = zip(columns, *texts, strict=True)  # by column
    widths = [max(map(_least_width, column)) + BORDER for column in cells]
    if out.width < NARROW and sum(widths) > out.width - 1:
        _rows_as_lists(title, columns, texts)
        return
    keys = _keys(texts)
    if sum(widths[:keys]) > out.width // 2:  # too little room for the others
        keys = 1
    for which in _column_groups(widths, out.width - 1, keys):
        grid = Table(title=escape(title) or None, title_justify="left", header_style="bold")
        for n in which:
            is_number = bool(rows) and all(isinstance(row[n], int | float) for row in rows)
            justify: Literal["right", "left"] = "right" if is_number else "left"
            is_whole = n == 0 and all(len(row[n]) <= LONGEST for row in texts)
            grid.add_column(Text(columns[n]), justify=justify, overflow="fold", no_wrap=is_whole)
        for row in texts:
            grid.add_row(*(Text(row[n]) for n in which))  # a text may hold `[b]`
        out.print(grid, soft_wrap=False)  # cells too wide for the window are wrapped
        title = ""


def _rows_as_lists(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the first cell of each row, with the others below, each after its column's name."""
    if title:
        out.print(wrapped(title), markup=False)
    for first, *others in rows:
        out.print(wrapped(first), style="bold", markup=False)
        for name, text in zip(columns[1:], others, strict=True):
            out.print(wrapped(f"{name}: {text}".removeprefix(": "), 2, hanging=2), markup=False)


def wrapped(text: str, indent: int = 0, hanging: int = 0) -> str:
    """Return a text wrapped to the window between words.

    Args:
        text: the text.
        indent: spaces before each line.
        hanging: more spaces before each line but the first.
    """
    first, others = " " * indent, " " * (indent + hanging)
    width = max(out.width - 1, 12)
    lines = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=others)
    return "\n".join(lines or [first])


def _least_width(text: str) -> int:
    """Return the width a cell needs: all of a short text, the longest word of a wrapped one."""
    words = text.split() if len(text) > LONGEST else [text]
    return min(LONGEST, max(map(len, words)))


def _keys(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of first columns that tell the rows apart; 1 if none do."""
    columns = len(rows[0]) if rows else 0
    prefixes = (n for n in range(1, columns) if len({tuple(row[:n]) for row in rows}) == len(rows))
    return next(prefixes, 1)


def _column_groups(widths: Sequence[int], room: int, keys: int = 1) -> list[list[int]]:
    """Return the columns of each part of a table: the first, and as many others as fit.

    Args:
        widths: of the columns.
        room: characters of a line.
        keys: number of first columns, which each part has.
    """
    first = list(range(min(keys, len(widths))))
    groups = [list(first)]
    for n in range(len(first), len(widths)):
        has_others = len(groups[-1]) > len(first)
        if has_others and sum(widths[m] for m in [*groups[-1], n]) > room:
            groups.append(list(first))
        groups[-1].append(n)
    return groups


def facts(pairs: Mapping[str, Any]) -> None:
    """Print names and values, one pair per line."""
    width = max(map(len, pairs), default=0)
    for name, value in pairs.items():
        out.print(f"{name:<{width}}  {cell(value)}", markup=False)


def tokens(label: str, pieces: Sequence[str]) -> None:
    """Print tokens side by side, neighbours in different colours."""
    line = Text(f"{label}  ")
    for piece, colour in zip(pieces, cycle(COLOURS), strict=False):
        line.append(piece, style=colour)
        line.append(" ")
    out.print(line)


def definitions(texts: Mapping[str, str]) -> None:
    """Print names with their texts beside them, or below in a narrow window."""
    indent = max(map(len, texts), default=0) + 4
    if out.width < NARROW:
        for name, text in texts.items():
            out.print(f"{wrapped(name, 2)}\n{wrapped(text, 4)}", markup=False)
        return
    for name, text in texts.items():
        first, *rest = textwrap.wrap(text, max(out.width - indent - 1, 24)) or [""]
        out.print(f"  {name:<{indent - 2}}{first}", markup=False)
        for more in rest:
            out.print(" " * indent + more, markup=False)


def some(names: Sequence[str], limit: int = 12) -> str:
    """Return names in a row, at most `limit` of them, with the number of the others."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
