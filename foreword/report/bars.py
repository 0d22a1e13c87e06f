"""Scores as points with intervals, and bar charts: SVG in the page's colours."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from foreword.formatting import figure as number
from foreword.report.curves import CELLS, PLACEHOLDERS, STYLE, inline

POINT_OFFSET = 0.16  # vertical distance of a cell's two points from the middle of its row


@dataclass(frozen=True)
class CellScores:
    """The scores of a cell on a task.

    Attributes:
        label: label of the cell.
        points: (mean, half the interval's width), pretrained and from scratch; nan if missing.
    """

    label: str
    points: tuple[tuple[float, float], ...]


def plot_scores(
    cells: Sequence[CellScores], x_label: str, title: str, level: float = math.nan
) -> str:
    """Return an `<svg>` of scores: full points pretrained, hollow ones from scratch.

    Args:
        cells: the scores of each cell, a row each, from the top.
        x_label: label of the axis.
        title: text for screen readers.
        level: score of the chance baseline, a dashed line; nan for none.
    """
    with _canvas((3.8, 0.9 + 0.36 * len(cells)), title) as (figure, axes):
        for row, cell in enumerate(cells):
            colour = PLACEHOLDERS[f"cell{row % CELLS}"]
            for index, (mean, half_width) in enumerate(cell.points):
                offset = (index - (len(cell.points) - 1) / 2) * 2 * POINT_OFFSET
                axes.errorbar(
                    mean,
                    row + offset,
                    xerr=None if math.isnan(half_width) else half_width,
                    fmt="o",
                    color=colour,
                    markersize=5,
                    markerfacecolor="none" if index else colour,
                    elinewidth=1.4,
                    capsize=2.5,
                )
        if not math.isnan(level):
            axes.axvline(level, color=PLACEHOLDERS["muted"], linewidth=1.0, linestyle=(0, (4, 3)))
        axes.set_yticks(range(len(cells)), [cell.label for cell in cells])
        axes.set_ylim(len(cells) - 0.5, -0.5)
        axes.grid(axis="x", linewidth=0.8)
        axes.tick_params(length=0)
        axes.set_xlabel(x_label)
        return _svg(figure, title)


def plot_columns(labels: Sequence[str], values: Sequence[float], x_label: str, title: str) -> str:
    """Return an `<svg>` of vertical bars with their values above them.

    Args:
        labels: label of each bar.
        values: height of each bar, from 0; nan leaves a gap.
        x_label: label of the axis.
        title: text for screen readers.
    """
    with _canvas((3.8, 2.3), title) as (figure, axes):
        heights = [0.0 if math.isnan(value) else value for value in values]
        bars = axes.bar(range(len(values)), heights, width=0.6, color=PLACEHOLDERS["accent"])
        axes.bar_label(bars, [number(value, 3) for value in values], padding=2, fontsize=8.5)
        axes.set_xticks(range(len(labels)), labels)
        axes.margins(y=0.15)
        axes.grid(axis="y", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0)
        axes.set_xlabel(x_label)
        return _svg(figure, title)


@contextmanager
def _canvas(size: tuple[float, float], title: str) -> Iterator[tuple[Figure, Any]]:
    """Yield a figure with a transparent background, and its axes, in the page's style."""
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": title}):
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_alpha(0)
        axes: Any = figure.add_subplot()
        axes.patch.set_alpha(0)
        yield figure, axes


def _svg(figure: Figure, title: str) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return inline(text.getvalue(), title)
