"""What tells the runs of a plot apart, where their lines lie on each other."""

from __future__ import annotations

from typing import Any

MAX_RUNS = 10  # runs that a plot can show: as many as there are colours
_MARKERS = "os^Dv*PXhp"
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)))


def run_style(number: int) -> dict[str, Any]:
    """Colour and marker of a run by its number, for matplotlib."""
    return {"color": f"C{number % MAX_RUNS}", "marker": _MARKERS[number % MAX_RUNS]}


def line_style(number: int, runs: int, points: int) -> dict[str, Any]:
    """The same with dashes of its own, and few markers, none where another run has its.

    Args:
        number: of the run.
        runs: in the plot.
        points: on the axis from left to right, about as many as the line has points.
    """
    apart = max(1, points // 6)
    every = (number * apart // max(1, runs), apart)
    return run_style(number) | {"linestyle": _DASHES[number % len(_DASHES)], "markevery": every}


def title(text: str, runs: int) -> str:
    """The title of a plot, which says so where not all runs are shown."""
    return text if runs <= MAX_RUNS else f"{text}\nthe first {MAX_RUNS} of {runs} runs"
