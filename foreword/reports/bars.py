"""Scores as points with intervals, and bar charts: SVG in the page's colours."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from foreword.formatting import figure as number
from foreword.reports.svg import CELLS, PLACEHOLDERS, Size, canvas, to_svg

POINT_OFFSET = 0.16  # vertical distance of a cell's two points from the middle of its row
LABEL_WIDTH = {"wide": 40, "half": 20, "narrow": 14}  # characters of a line


@dataclass(frozen=True)
class CellScores:
    """The scores of a cell on a task.

    Attributes:
        points: (mean, half the interval's width), pretrained and from scratch; nan if missing.
        colour: name of a colour of the page; "" for the next of the cells' colours.
    """

    label: str
    points: tuple[tuple[float, float], ...]
    colour: str = ""


def plot_scores(
    cells: Sequence[CellScores],
    x_label: str,
    title: str,
    level: float = math.nan,
    size: Size = "half",
) -> str:
    """Return an `<svg>` of scores: full points pretrained, hollow ones from scratch.

    Args:
        cells: the scores of each cell, a row each, from the top.
        title: text for screen readers.
        level: score of the chance baseline, a dashed line; nan for none.
    """
    labels = [textwrap.fill(cell.label, LABEL_WIDTH[size]) for cell in cells]
    lines = sum(max(2, 1 + label.count("\n")) for label in labels)
    with canvas(size, 0.8 + 0.19 * lines, title) as (figure, axes):
        for row, cell in enumerate(cells):
            colour = PLACEHOLDERS[cell.colour or f"cell{row % CELLS}"]
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
        axes.set_yticks(range(len(cells)), labels)
        axes.set_ylim(len(cells) - 0.5, -0.5)
        axes.grid(axis="x", linewidth=0.8)
        axes.tick_params(length=0)
        axes.set_xlabel(x_label)
        return to_svg(figure, title)


def plot_columns(
    labels: Sequence[str],
    values: Sequence[float],
    x_label: str,
    title: str,
    size: Size = "half",
) -> str:
    """Return an `<svg>` of vertical bars with their values above them.

    Args:
        values: height of each bar, from 0; nan leaves a gap.
        title: text for screen readers.
    """
    with canvas(size, 2.4, title) as (figure, axes):
        heights = [0.0 if math.isnan(value) else value for value in values]
        bars = axes.bar(range(len(values)), heights, width=0.6, color=PLACEHOLDERS["accent"])
        axes.bar_label(bars, [number(value, 3) for value in values], padding=2)
        axes.set_xticks(range(len(labels)), labels)
        axes.margins(y=0.15)
        axes.grid(axis="y", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0)
        axes.set_xlabel(x_label)
        return to_svg(figure, title)
