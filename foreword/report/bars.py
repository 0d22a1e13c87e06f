"""Scores as points with their intervals, a line per cell, and bars: SVG in the page's colours."""

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

POINT_OFFSET = 0.16  # how far the two points of a cell lie from its middle


@dataclass(frozen=True)
class CellScores:
    """A cell's score on a task.

    Attributes:
        label: of the cell.
        points: (mean, half of the interval) pretrained and from scratch; nan where there is none.
    """

    label: str
    points: tuple[tuple[float, float], ...]


def plot_scores(
    bars: Sequence[CellScores], x_label: str, title: str, level: float = math.nan
) -> str:
    """An `<svg>`: full points pretrained, hollow ones from scratch.

    Args:
        bars: a line each, from the top.
        x_label: under the axis.
        title: said to those who cannot see it.
        level: what guessing reaches, a dashed line; nan for none.
    """
    with _canvas((3.8, 0.9 + 0.36 * len(bars)), title) as (figure, axes):
        for row, bar in enumerate(bars):
            colour = PLACEHOLDERS[f"cell{row % CELLS}"]
            for place, (mean, half) in enumerate(bar.points):
                shift = (place - (len(bar.points) - 1) / 2) * 2 * POINT_OFFSET
                axes.errorbar(
                    mean,
                    row + shift,
                    xerr=None if math.isnan(half) else half,
                    fmt="o",
                    color=colour,
                    markersize=5,
                    markerfacecolor="none" if place else colour,
                    elinewidth=1.4,
                    capsize=2.5,
                )
        if not math.isnan(level):
            axes.axvline(level, color=PLACEHOLDERS["muted"], linewidth=1.0, linestyle=(0, (4, 3)))
        axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
        axes.set_ylim(len(bars) - 0.5, -0.5)
        axes.grid(axis="x", linewidth=0.8)
        axes.tick_params(length=0)
        axes.set_xlabel(x_label)
        return _svg(figure, title)


def plot_columns(labels: Sequence[str], values: Sequence[float], x_label: str, title: str) -> str:
    """An `<svg>` of upright bars, their values above them.

    Args:
        labels: under each.
        values: their heights, from 0 on; nan leaves a gap.
        x_label: under the axis.
        title: said to those who cannot see it.
    """
    with _canvas((3.8, 2.3), title) as (figure, axes):
        heights = [0.0 if math.isnan(value) else value for value in values]
        found = axes.bar(range(len(values)), heights, width=0.6, color=PLACEHOLDERS["accent"])
        axes.bar_label(found, [number(value, 3) for value in values], padding=2, fontsize=8.5)
        axes.set_xticks(range(len(labels)), labels)
        axes.margins(y=0.15)
        axes.grid(axis="y", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0)
        axes.set_xlabel(x_label)
        return _svg(figure, title)


@contextmanager
def _canvas(size: tuple[float, float], title: str) -> Iterator[tuple[Figure, Any]]:
    """A figure that the page shines through, and its axes, while they are drawn on."""
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
