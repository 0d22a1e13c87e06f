"""Curves as SVG that takes its colours from the page, in light and in dark."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from foreword.formatting import quantity

# Placeholder colours, which the SVG text replaces by the page's: `var(--ink)` and so on.
PLACEHOLDERS = {
    "ink": "#010203",
    "muted": "#040506",
    "grid": "#070809",
    "accent": "#0a0b0c",
    "second": "#0d0e0f",
    **{f"cell{n}": f"#1{n:x}1{n:x}1{n:x}" for n in range(12)},
}
CELLS = 12  # colours of compared cells; further cells repeat them
MOST_INSIDE = 6  # curves; with more, the legend would hide some and moves outside
STYLE = {
    "svg.fonttype": "none",
    "font.size": 9.5,
    "axes.edgecolor": PLACEHOLDERS["grid"],
    "axes.labelcolor": PLACEHOLDERS["muted"],
    "xtick.color": PLACEHOLDERS["muted"],
    "ytick.color": PLACEHOLDERS["muted"],
    "grid.color": PLACEHOLDERS["grid"],
    "text.color": PLACEHOLDERS["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
}


@dataclass(frozen=True)
class Line:
    """A curve or a level of a plot.

    Attributes:
        label: label in the legend, or beside a level.
        x: x values; empty for a level.
        y: y values; nan is left out. A level has one.
        colour: `ink`, `muted`, `accent`, `second`, or `cell0` to `cell11`.
        style: `line`, `faint`, `dots` (a line with its points) or `level`.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str = "accent"
    style: Literal["line", "faint", "dots", "level"] = "line"


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
    lines: Sequence[Line], x_label: str, title: str, *, tall: bool = False, is_log: bool = False
) -> str:
    """Return an `<svg>` of curves, ready for a page.

    Args:
        lines: at least one, with at least one finite value.
        x_label: label of the axis.
        title: text for screen readers.
        tall: whether to make a large figure.
        is_log: whether the x axis is logarithmic.
    """
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": f"{title} {tall}"}):
        figure = Figure(figsize=(7.6, 3.5) if tall else (3.8, 2.3), layout="constrained")
        figure.patch.set_alpha(0)
        axes: Any = figure.add_subplot()
        axes.patch.set_alpha(0)
        # The curves and the axes.
        for line in lines:
            _plot_line(axes, line)
        axes.grid(axis="y", linewidth=0.8)
        axes.tick_params(length=0)
        axes.set_xlabel(x_label)
        if is_log:
            axes.set_xscale("log")
        else:
            axes.xaxis.set_major_locator(MaxNLocator(6 if tall else 4, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, tick: _tick_label(value)))
        if axes.get_ylim()[1] >= 1000:
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, tick: quantity(value)))
        # The legend, outside if there are many curves.
        names = sum(bool(line.label) and line.style != "level" for line in lines)
        if names > MOST_INSIDE:
            where, columns = ("outside right upper", 1) if tall else ("outside lower center", 3)
            figure.legend(frameon=False, loc=where, ncols=columns)
        elif names > 1:
            axes.legend(frameon=False, loc="upper right")
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return inline(text.getvalue(), title)


def _tick_label(value: float) -> str:
    return f"{value:g}" if 0 < value < 1 else quantity(value)


def _plot_line(axes: Any, line: Line) -> None:
    colour = PLACEHOLDERS[line.colour]
    if line.style == "level":
        axes.axhline(line.y[0], color=colour, linewidth=1.0, linestyle=(0, (4, 3)))
        where = axes.get_yaxis_transform()
        axes.text(0.995, line.y[0], line.label, transform=where, ha="right", va="bottom", size=8.5)
        return
    style: dict[str, Any] = {"color": colour, "label": line.label or None, "linewidth": 1.8}
    if line.style == "faint":
        style |= {"linewidth": 1.0, "alpha": 0.3}
    if line.style == "dots":
        style |= {"marker": "o", "markersize": 4.5, "linewidth": 1.2}
    axes.plot(line.x, line.y, solid_capstyle="round", **style)


def inline(svg: str, title: str) -> str:
    """Return the `<svg>` element alone, without a size of its own, in the page's colours."""
    svg = svg[svg.index("<svg") :].strip()
    for name, colour in PLACEHOLDERS.items():
        svg = svg.replace(colour, f"var(--{name})")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None
    head = (
        f'<svg {box[0]} role="img" aria-label="{title}" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return head + svg[svg.index(">") + 1 :]
