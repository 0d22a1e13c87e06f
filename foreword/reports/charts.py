"""The figures of reports as data, which the chart of the page that serves models draws.

In the file stands a table of some of the values; `serving/page/report.js` puts the chart there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from html import escape
from typing import Any

from foreword.formatting import figure as number
from foreword.formatting import quantity
from foreword.reports.tables import header
from foreword.serving import bundle

CELLS = 12  # colours of compared cells; further cells repeat them
DIGITS = 6  # of a value
MOST_ROWS = 8  # of the table that stands for a chart without scripts
POINT_OFFSET = 0.16  # distance of a row's two points from its middle
Pair = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """Some points of a chart, and how they are drawn.

    Attributes:
        label: its name; "" for what is only looked at.
        x: x values.
        y: y values, of an axis of names their numbers; nan is left out.
        colour: `ink`, `muted`, `accent`, `second`, or `cell0` to `cell11`; several are of the
            points.
        style: a `line`, `faint`, `dashed` or with `dots`; `points` alone, `hollow`, or `rings`
            around others; `bars` from 0, or the `area` between the ends.
        ends: an interval of each point, of its y, or of its x where the y axis has names.
        texts: what stands beside each point.
    """

    label: str
    x: Iterable[float]
    y: Iterable[float]
    colour: str | Sequence[str] = "accent"
    style: str = "line"
    _: KW_ONLY
    ends: Iterable[Pair] = ()
    texts: Sequence[str] = ()

    def data(self) -> dict[str, Any]:
        """Return it as the chart takes it."""
        colours = [self.colour] if isinstance(self.colour, str) else list(self.colour)
        names = [f"var(--{colour})" for colour in colours]
        points = [list(map(rounded, point)) for point in zip(self.x, self.y, strict=True)]
        content = {"name": self.label, "style": self.style, "colour": names[0], "points": points}
        more = {
            "ends": [list(map(rounded, pair)) for pair in self.ends],
            "colours": names[1:] and names,
            "texts": list(self.texts),
        }
        return content | {key: value for key, value in more.items() if value}


@dataclass(frozen=True)
class ChartAxis:
    """An axis of a chart.

    Attributes:
        label: what it measures.
        log: whether it is logarithmic.
        names: names of its values 0, 1, ...
        ticks: values that are named; default: round ones.
        range: its ends; default: all values.
        flip: whether large values come first.
    """

    label: str
    log: bool = False
    names: Sequence[str] = ()
    ticks: Sequence[float] = ()
    range: Sequence[float] = ()
    flip: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        title: what it shows.
        lines: what is in it.
        x: the axis below; a text is its label.
        y: the axis on the left.
        marks: vertical lines, with their names.
        levels: horizontal lines, with their names.
        legend: what the names of the lines are.
        height: pixels; None for a small chart's, or what the names of the y axis need.
    """

    title: str
    lines: Sequence[Line]
    x: ChartAxis | str
    y: ChartAxis | str = ""
    _: KW_ONLY
    marks: Sequence[tuple[float, str]] = ()
    levels: Sequence[tuple[float, str]] = ()
    legend: str = ""
    height: int | None = None

    def html(self) -> str:
        """Return the figure: its data, and a table for those without scripts."""
        series = [line.data() for line in self.lines]
        x, y = (ChartAxis(axis) if isinstance(axis, str) else axis for axis in (self.x, self.y))
        content: dict[str, Any] = {"title": self.title, "series": series}
        content |= {name: _given(vars(axis)) for name, axis in (("x", x), ("y", y))}
        for name, at, lines in (("marks", "x", self.marks), ("levels", "y", self.levels)):
            content[name] = [{at: rounded(value), "label": label} for value, label in lines]
        content |= _given({"legend": self.legend, "height": self.height})
        return figure(self.title, content, *_table(series, x, y))


def scores_chart(
    title: str,
    metric: str,
    rows: Mapping[str, Sequence[tuple[float, float]]],
    names: Sequence[str] = ("",),
    colours: Sequence[str] = (),
    marks: Sequence[tuple[float, str]] = (),
) -> Chart:
    """Return the chart of scores, a row each: full points, and hollow ones of a second kind.

    Args:
        title: what it shows.
        metric: of the scores.
        rows: by name, (mean, half the interval's width) of each kind; nan if missing.
        names: of the kinds.
        colours: of the rows; default: those of cells.
        marks: vertical lines.
    """
    colours = colours or [f"cell{n % CELLS}" for n in range(len(rows))]
    lines = []
    for kind, name in enumerate(names):
        means, halves = zip(*(points[kind] for points in rows.values()), strict=True)
        offset = (kind - (len(names) - 1) / 2) * 2 * POINT_OFFSET
        at = [row + offset for row in range(len(rows))]
        ends = [(mean - half, mean + half) for mean, half in zip(means, halves, strict=True)]
        style = "hollow" if kind else "points"
        lines.append(Line(name, means, at, colours, style, ends=ends))
    return Chart(title, lines, metric, ChartAxis("", names=list(rows)), marks=marks)


def heat(title: str, names: Sequence[str], weights: Sequence[Sequence[float]]) -> str:
    """Return the figure of a matrix whose rows and columns are the same things.

    Args:
        title: what it shows.
        names: of rows and columns.
        weights: from 0 to 1.
    """
    content = {"title": title, "rows": names, "columns": names, "weights": weights}
    rows = [
        [name, *(f"{100 * w:.0f} %" for w in row)] for name, row in zip(names, weights, strict=True)
    ]
    return figure(title, content | {"isSquare": True}, ["", *names], rows)


def figure(title: str, content: Any, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a figure as data for scripts, and as a table without them."""
    head = "".join(map(header, heads))
    lines = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f'<td class="n">{escape(cell)}</td>' for cell in cells)
        + "</tr>"
        for first, *cells in rows
    )
    return (
        f'<figure class="card plot"><figcaption>{escape(title)}</figcaption>{bundle.data(content)}'
        f'<div class="scroll"><table class="plain"><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div></figure>"
    )


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


def rounded(value: float) -> float | None:
    """Return a value with few digits; None if it is not finite."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value or key == "label"}


def _table(
    series: Sequence[dict[str, Any]], x: ChartAxis, y: ChartAxis
) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of some values: of the series that have names, or of all."""
    told = [one for one in series if one["name"]] or series
    key, names = (1, y.names) if y.names else (0, x.names)
    values = [
        {round(p[1]) if key else p[0]: p[1 - key] for p in one["points"] if None not in p}
        for one in told
    ]
    keys = sorted({at for of in values for at in of})
    every = 1 if names else -(-len(keys) // MOST_ROWS) or 1
    heads = [one["name"] or (x.label if key else "value") for one in told]
    rows = [
        [names[int(at)] if names else quantity(at)]
        + [number(of.get(at, math.nan)) for of in values]
        for at in keys[::-every][::-1]
    ]
    return ["" if key else x.label, *heads], rows
