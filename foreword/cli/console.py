"""How the command line speaks: tables and progress to people, JSON to scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """A line for people; it goes to the error stream, so that output stays clean for pipes."""
    err.print(text, markup=False)


def emit(value: Any) -> None:
    """One JSON document on the output stream, for scripts."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table on the output stream; numbers are set to the right."""
    grid = Table(title=title or None, title_justify="left", header_style="bold")
    for n, column in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[n], int | float) for row in rows)
        grid.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(_cell(value) for value in row))
    out.print(grid, soft_wrap=False)  # cells too wide for the window go on below


def facts(pairs: Mapping[str, Any]) -> None:
    """Names and values, one a line."""
    width = max(map(len, pairs), default=0)
    for name, value in pairs.items():
        out.print(f"{name:<{width}}  {_cell(value)}", markup=False)


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def progress(label: str) -> Progress:
    """A progress bar with time left on the error stream, for a person who watches."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
