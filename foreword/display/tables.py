"""Tables and facts on the standard output."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from foreword.formatting import cell, column_groups, key_columns

# Texts may hold `[b]` or `:smile:`.
out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
LONGEST, BORDER = 24, 3  # characters of a cell kept on one line; characters of a column's border
COLOURS = ("black on bright_cyan", "black on bright_yellow", "black on bright_green")
NARROW = 60  # a window of fewer characters shows a table that does not fit as a list


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table, with numbers aligned to the right and texts to the letter.

    A table too wide for the window continues below, with the first columns repeated that tell its
    rows apart; in a narrow window each row is a list. A line separates rows whose first cells
    differ, such as a model's and those of random weights, where several rows share theirs; an
    empty one is that of the row above.
    """
    texts = [[cell(value) for value in row] for row in rows]
    cells = zip(columns, *texts, strict=True)  # by column
    widths = [max(map(_least_width, column)) + BORDER for column in cells]
    if out.width < NARROW and sum(widths) > out.width - 1:
        _rows_as_lists(title, columns, texts)
        return
    keys = key_columns(texts)
    # Keys that leave too little room are wrapped.
    room = out.width - 1
    wide, least = sum(widths[:keys]), max(widths[keys:], default=0)
    is_tight = wide + least > room
    if is_tight:
        widths[:keys] = [width * (room - least) // wide for width in widths[:keys]]
    # An empty cell continues the one above.
    firsts: list[str] = []
    for row in texts:
        firsts.append(row[0] or "".join(firsts[-1:]))
    changes = [n for n in range(1, len(firsts)) if firsts[n] != firsts[n - 1]]
    in_sections = len(changes) + 1 == len(set(firsts)) < len(firsts)
    if title:  # over the width of the window, where a narrow table would break it
        out.print(wrapped(title), style="table.title")
    for which in column_groups(widths, room, keys):
        grid = Table(header_style="bold")
        for n in which:
            is_number = bool(rows) and all(isinstance(row[n], int | float) for row in rows)
            justify: Literal["right", "left"] = "right" if is_number else "left"
            is_whole = n == 0 and not is_tight and all(len(row[n]) <= LONGEST for row in texts)
            most = widths[n] - BORDER if is_tight and n < keys else None
            grid.add_column(
                Text(columns[n]),
                justify=justify,
                overflow="fold",
                no_wrap=is_whole,
                max_width=most,
            )
        for number, row in enumerate(texts, 1):
            ends = in_sections and number in changes
            grid.add_row(*(Text(row[n]) for n in which), end_section=ends)
        out.print(grid, soft_wrap=False)  # cells too wide for the window are wrapped


def _rows_as_lists(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the first cell of each row, with the others below, each after its column's name."""
    if title:
        out.print(wrapped(title))
    for first, *others in rows:
        out.print(wrapped(first), style="bold")
        for name, text in zip(columns[1:], others, strict=True):
            out.print(wrapped(f"{name}: {text}".removeprefix(": "), 2, hanging=2))


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


def facts(pairs: Mapping[str, Any]) -> None:
    """Print names and values, one pair per line."""
    width = max(map(len, pairs), default=0)
    for name, value in pairs.items():
        out.print(f"{name:<{width}}  {cell(value)}")


def tokens(rows: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> None:
    """Print tokens side by side, and those of further rows below them, wrapped to the window.

    Args:
        rows: the label, the tokens and their styles of each row; without styles, neighbours have
            different colours.
    """
    indent = max(len(label) for label, _, _ in rows) + 2
    columns = zip(*(pieces for _, pieces, _ in rows), strict=True)
    widths = [max(map(cell_len, column)) for column in columns]
    for start, end in _cuts(widths, out.width - indent):
        for label, pieces, styles in rows:
            colours = list(styles) or [COLOURS[n % len(COLOURS)] for n in range(len(pieces))]
            line = Text(f"{label:<{indent}}")
            for n in range(start, end):
                line.append(pieces[n], style=colours[n])
                line.append(" " * (widths[n] - cell_len(pieces[n]) + 1))
            line.rstrip()
            out.print(line)


def _cuts(widths: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Return where lines begin and end that hold cells of these widths."""
    cuts, start, used = [], 0, 0
    for n, width in enumerate(widths):
        if n > start and used + width + 1 > room:
            cuts.append((start, n))
            start, used = n, 0
        used += width + 1
    return [*cuts, (start, len(widths))] if widths else []


def definitions(texts: Mapping[str, str]) -> None:
    """Print names with their texts beside them, or below in a narrow window."""
    indent = max(map(len, texts), default=0) + 4
    if out.width < NARROW:
        for name, text in texts.items():
            out.print(f"{wrapped(name, 2)}\n{wrapped(text, 4)}")
        return
    for name, text in texts.items():
        first, *rest = textwrap.wrap(text, max(out.width - indent - 1, 24)) or [""]
        out.print(f"  {name:<{indent - 2}}{first}")
        for more in rest:
            out.print(" " * indent + more)


def some(names: Sequence[str], limit: int = 12) -> str:
    """Return names in a row, at most `limit` of them, with the number of the others."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
