"""Colours, markers and dashes that tell the runs of a plot apart, even where lines coincide."""

from __future__ import annotations

from typing import Any

MAX_RUNS = 10  # in one plot: the number of colours
_MARKERS = "os^Dv*PXhp"
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)))


def run_style(number: int) -> dict[str, Any]:
    """Return the colour and marker of a run by its number, for matplotlib."""
    return {"color": f"C{number % MAX_RUNS}", "marker": _MARKERS[number % MAX_RUNS]}


def line_style(number: int, runs: int, points: int) -> dict[str, Any]:
    """Return the style of a run's line: colour, dashes, and sparse markers at its own positions.

    Args:
        number: number of the run.
        runs: number of runs in the plot.
        points: number of points of the line.
    """
    spacing = max(1, points // 6)
    marked = (number * spacing // max(1, runs), spacing)  # first, step
    return run_style(number) | {"linestyle": _DASHES[number % len(_DASHES)], "markevery": marked}


def title(text: str, runs: int) -> str:
    """Return the title of a plot, with a remark if not all runs are shown."""
    return text if runs <= MAX_RUNS else f"{text}\nthe first {MAX_RUNS} of {runs} runs"
