"""Curves as SVG that takes its colours from the page, in light and in dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.ticker import FuncFormatter, MaxNLocator

from foreword.formatting import quantity
from foreword.reports.svg import PLACEHOLDERS, Size, canvas, to_svg

MOST_INSIDE = 6  # curves; with more, the legend would hide some and moves outside
HEIGHTS: dict[Size, float] = {"wide": 3.6, "half": 2.5, "narrow": 2.3}  # inches


@dataclass(frozen=True)
class Line:
    """A curve or a level of a plot.

    Attributes:
        label: label in the legend, or beside a level or a mark.
        x: x values; empty for a level. A mark has one.
        y: y values; nan is left out. A level has one; empty for a mark.
        colour: `ink`, `muted`, `accent`, `second`, or `cell0` to `cell11`.
        style: `line`, `faint`, `dots` (a line with its points), `level`, or `mark`, a vertical one.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str = "accent"
    style: Literal["line", "faint", "dots", "level", "mark"] = "line"


def smoothed(values: Sequence[float], keep: float = 0.8) -> list[float]:
    """Return the exponential moving average, with bias correction; nan stays nan."""
    mean = weight = 0.0
    averages = []
    for value in values:
        if math.isfinite(value):
            mean = keep * mean + (1 - keep) * value
            weight = keep * weight + (1 - keep)
        averages.append(mean / weight if math.isfinite(value) else math.nan)
    return averages


def plot_curves(
    lines: Sequence[Line], x_label: str, title: str, size: Size = "half", *, is_log: bool = False
) -> str:
    """Return an `<svg>` of curves, ready for a page.

    Args:
        lines: at least one, with at least one finite value.
        title: text for screen readers.
    """
    with canvas(size, HEIGHTS[size], title) as (figure, axes):
        # The curves and the axes.
        for line in lines:
            _plot_line(axes, line)
        axes.grid(axis="y", linewidth=0.8)
        axes.tick_params(length=0)
        axes.set_xlabel(x_label)
        if is_log:
            axes.set_xscale("log")
        else:
            axes.xaxis.set_major_locator(MaxNLocator(6 if size == "wide" else 4, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, tick: _tick_label(value)))
        if axes.get_ylim()[1] >= 1000:
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, tick: quantity(value)))
        # The legend, outside if there are many curves.
        names = sum(bool(line.label) and line.style not in ("level", "mark") for line in lines)
        if names > MOST_INSIDE:
            is_beside = size == "wide"
            where = "outside right upper" if is_beside else "outside lower center"
            figure.legend(frameon=False, loc=where, ncols=1 if is_beside else 2)
        elif names > 1:
            axes.legend(frameon=False, loc="best")
        return to_svg(figure, title)


def _tick_label(value: float) -> str:
    return f"{value:g}" if 0 < value < 1 else quantity(value)


def _plot_line(axes: Any, line: Line) -> None:
    colour = PLACEHOLDERS[line.colour]
    if line.style == "level":
        axes.axhline(line.y[0], color=colour, linewidth=1.0, linestyle=(0, (4, 3)))
        where = axes.get_yaxis_transform()
        axes.text(0.995, line.y[0], line.label, transform=where, ha="right", va="bottom")
        return
    if line.style == "mark":
        axes.axvline(line.x[0], color=colour, linewidth=1.0, linestyle=(0, (1, 3)))
        where = axes.get_xaxis_transform()
        axes.text(line.x[0], 0.99, f" {line.label}", transform=where, ha="left", va="top")
        return
    style: dict[str, Any] = {"color": colour, "label": line.label or None, "linewidth": 1.8}
    if line.style == "faint":
        style |= {"linewidth": 1.0, "alpha": 0.3}
    if line.style == "dots":
        style |= {"marker": "o", "markersize": 4.5, "linewidth": 1.2}
    axes.plot(line.x, line.y, solid_capstyle="round", **style)
