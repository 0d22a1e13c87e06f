"""How the command line speaks: tables and progress to people, JSON to scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from foreword.cli._bar import Bar, fitted

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)
LONGEST, BETWEEN = 24, 3  # characters that stay on one line, and of a column's border


def say(text: str) -> None:
    """A line for people; it goes to the error stream, so that output stays clean for pipes."""
    err.print(text, markup=False)


def beside(before: str, after: str) -> str:
    """Two texts on one line, for people; where one watches, cut to the window.

    What goes before keeps half of the room, or what the other leaves.
    """
    indent, arrow = "    ", "  ->  "
    texts = [Text(one_line(text)) for text in (before, after)]
    if err.is_terminal:
        room = err.width - len(indent) - len(arrow) - 1
        texts[0].truncate(max(room // 2, room - texts[1].cell_len), overflow="ellipsis")
        texts[1].truncate(room - texts[0].cell_len, overflow="ellipsis")
    return indent + arrow.join(text.plain for text in texts)


def one_line(text: str) -> str:
    """A text with its line breaks to be seen, and blanks for all else that cannot be printed."""
    return "".join(c if c.isprintable() else "⏎" if c == "\n" else " " for c in text)


def emit(value: Any) -> None:
    """One JSON document on the output stream, for scripts."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table on the output stream; numbers are set to the right.

    One too wide for the window goes on below, with its first column once more.
    """
    texts = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(_least_width, of)) + BETWEEN for of in zip(columns, *texts, strict=True)]
    for which in _side_by_side(widths, out.width - 1):
        grid = Table(title=title or None, title_justify="left", header_style="bold")
        for n in which:
            is_number = bool(rows) and all(isinstance(row[n], int | float) for row in rows)
            justify: Literal["right", "left"] = "right" if is_number else "left"
            is_whole = n == 0 and all(len(row[n]) <= LONGEST for row in texts)
            grid.add_column(columns[n], justify=justify, overflow="fold", no_wrap=is_whole)
        for row in texts:
            grid.add_row(*(row[n] for n in which))
        out.print(grid, soft_wrap=False)  # cells too wide for the window go on below
        title = ""


def _least_width(text: str) -> int:
    """What a cell needs: all of a short text, the longest word of one that may go on below."""
    words = text.split() if len(text) > LONGEST else [text]
    return min(LONGEST, max(map(len, words)))


def _side_by_side(widths: Sequence[int], room: int) -> list[list[int]]:
    """Which columns stand side by side: the first, and as many others as there is room for."""
    groups: list[list[int]] = [[0]]
    for n in range(1, len(widths)):
        is_begun = len(groups[-1]) > 1
        if is_begun and sum(widths[m] for m in [*groups[-1], n]) > room:
            groups.append([0])
        groups[-1].append(n)
    return groups


def facts(pairs: Mapping[str, Any]) -> None:
    """Names and values, one a line."""
    width = max(map(len, pairs), default=0)
    for name, value in pairs.items():
        out.print(f"{name:<{width}}  {_cell(value)}", markup=False)


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def progress() -> Bar:
    """A live line on the error stream for a person who watches, or a line now and then."""
    is_live = sys.stderr.isatty() and not err.is_dumb_terminal and not err.legacy_windows
    is_coloured = err.color_system is not None and not err.no_color
    return Bar(say, is_live=is_live, is_coloured=is_coloured)


def line_of(parts: Sequence[str], ranks: Sequence[int]) -> str:
    """Parts of a line for people; where one watches, as many as the window has room for."""
    return fitted(parts, ranks, err.width - 1 if err.is_terminal else 1 << 16)
