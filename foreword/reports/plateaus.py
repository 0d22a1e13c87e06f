"""The page of plateaus: the curve of each size, and the tokens at which it flattens."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from foreword.disk import atomic
from foreword.formatting import quantity
from foreword.reports import fragments
from foreword.reports.charts import CELLS, Chart, ChartAxis, Line
from foreword.reports.page import LARGE, page
from foreword.reports.scaling import table, write_rows
from foreword.scaling.plateaus import Plateau

HOW = (
    "Each curve is E + B / D^b, fitted to the losses of one size by tokens D at one learning rate, "
    "of text read once. Its plateau is the D from which a doubling takes less than the threshold "
    "off the loss. Intervals are 95 %, over residuals drawn again, or over seeds where a size has "
    "three; what all measurements of a run share, such as its order of the text, they do not know."
)


def plateau_rows(found: Sequence[Plateau]) -> list[dict[str, Any]]:
    """Return a row for each size: its plateau and what is wrong with it."""
    rows = []
    for one in found:
        low, high = one.interval or (np.nan, np.nan)
        rows.append(
            {
                "family": one.family,
                "parameters": quantity(one.parameters),
                "plateau (tokens)": quantity(one.plateau),
                "interval": f"{quantity(low)} to {quantity(high).replace('–', '∞')}"
                if one.interval
                else "",
                "measured to": quantity(one.tokens[-1]),
                "last doubling": percent(one.last_slope, 1),
                "error": percent(one.error, 2),
                "remark": one.mark,
            }
        )
    return rows if any(row["family"] for row in rows) else [_without(row, "family") for row in rows]


def percent(share: float, digits: int) -> str:
    """Return a share in percent; a dash for nan."""
    return f"{100 * share:.{digits}f} %" if np.isfinite(share) else "–"


def _without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}


def write_plateaus(
    out: Path, source: str, found: Sequence[Plateau], title: str, lines: Sequence[str]
) -> None:
    """Write `plateaus.html` and `plateaus.csv`.

    Args:
        lines: the trends, and what a reader should know.
    """
    out.mkdir(parents=True, exist_ok=True)
    write_rows(out / "plateaus.csv", [one.as_json() for one in found])
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    body = [
        f"<h1>Plateaus: {escape(source)}</h1>",
        f'<p class="lead">{escape(title)}</p>',
        f'<ul class="note">{items}</ul>',
        table(plateau_rows(found)),
        curves_chart(found).html(),
        sizes_chart(found).html(),
        fragments.note(HOW),
    ]
    atomic.write_text(out / "plateaus.html", page(f"Plateaus: {source}", "\n".join(body)))


def curves_chart(found: Sequence[Plateau]) -> Chart:
    """Return the losses of each size, its curve and its plateau."""
    lines = []
    for n, one in enumerate(found):
        colour = f"cell{n % CELLS}"
        label = " ".join(filter(None, (one.family, quantity(one.parameters))))
        e, b, exponent = one.values
        x = np.geomspace(one.tokens[0], one.tokens[-1], 100)
        lines.append(Line(label, one.tokens, one.loss, colour, "points"))
        lines.append(Line("", x, e + b * x**-exponent, colour, "faint"))
        if one.is_reached:
            lines.append(Line("", [one.plateau], [e + b * one.plateau**-exponent], colour, "rings"))
    title = "Loss by tokens; lines: fitted; rings: plateaus"
    x_axis = ChartAxis("tokens", log=True)
    return Chart(title, lines, x_axis, "loss", legend="parameters", height=LARGE)


def sizes_chart(found: Sequence[Plateau]) -> Chart:
    """Return the plateaus by parameters, with their intervals, which may be far wider."""
    shown = [one for one in found if 0 < one.plateau < np.inf]
    lines = []
    for n, family in enumerate(dict.fromkeys(one.family for one in found)):
        for style, is_reached in (("points", True), ("hollow", False)):
            own = [one for one in shown if (one.family, one.is_reached) == (family, is_reached)]
            x, y = [one.parameters for one in own], [one.plateau for one in own]
            ends = [one.interval or (np.nan, np.nan) for one in own]
            lines.append(Line(family, x, y, f"cell{n % CELLS}", style, ends=ends))
    known = [one.plateau for one in shown]
    y_axis = ChartAxis("tokens", log=True, range=[min(known) / 3, max(known) * 3] if known else ())
    title = "Plateau by parameters; hollow: not within the curve"
    return Chart(title, lines, ChartAxis("parameters", log=True), y_axis)
