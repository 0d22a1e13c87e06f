"""The page of plateaus: the curve of each size, and the tokens at which it flattens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from foreword.disk import atomic
from foreword.formatting import quantity
from foreword.reports import fragments
from foreword.reports.page import page
from foreword.reports.scaling import finish, table, write_rows
from foreword.reports.svg import CELLS, PLACEHOLDERS, Size, canvas, to_svg
from foreword.scaling.plateaus import Plateau

HEIGHTS: dict[Size, float] = {"wide": 4.4, "half": 3.4, "narrow": 3.2}  # inches
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
    curves, sizes = partial(plot_curves, found), partial(plot_sizes, found)
    body = [
        f"<h1>Plateaus: {escape(source)}</h1>",
        f'<p class="lead">{escape(title)}</p>',
        f'<ul class="note">{items}</ul>',
        table(plateau_rows(found)),
        fragments.figure("Loss by tokens; lines: fitted; rings: plateaus", curves, is_large=True),
        fragments.figure("Plateau by parameters; hollow: not within the curve", sizes),
        fragments.note(HOW),
    ]
    atomic.write_text(out / "plateaus.html", page(f"Plateaus: {source}", "\n".join(body)))


def plot_curves(found: Sequence[Plateau], size: Size) -> str:
    """Return an `<svg>` of the losses of each size, its curve and its plateau."""
    title = "loss by tokens of each size"
    with canvas(size, HEIGHTS[size], title) as (drawing, axes):
        for number, one in enumerate(found):
            colour = PLACEHOLDERS[f"cell{number % CELLS}"]
            label = " ".join(filter(None, (one.family, quantity(one.parameters))))
            axes.plot(one.tokens, one.loss, "o", color=colour, markersize=4, label=label)
            e, b, exponent = one.values
            x = np.geomspace(one.tokens[0], one.tokens[-1], 100)
            axes.plot(x, e + b * x**-exponent, color=colour, linewidth=1.2)
            if one.is_reached:
                y = e + b * one.plateau**-exponent
                axes.plot(one.plateau, y, "o", color=colour, markersize=12, markerfacecolor="none")
        axes.set_xscale("log")
        finish(axes, "tokens", "loss")
        where = "outside right upper" if size == "wide" else "outside lower center"
        columns = 1 if size == "wide" else 2
        drawing.legend(title="parameters", frameon=False, loc=where, ncols=columns)
        return to_svg(drawing, title)


def plot_sizes(found: Sequence[Plateau], size: Size) -> str:
    """Return an `<svg>` of the plateaus by parameters, with their intervals."""
    title = "plateau by parameters"
    shown = [one for one in found if 0 < one.plateau < np.inf]
    with canvas(size, HEIGHTS[size], title) as (drawing, axes):
        for number, family in enumerate(dict.fromkeys(one.family for one in found)):
            colour = PLACEHOLDERS[f"cell{number % CELLS}"]
            for one in (one for one in shown if one.family == family):
                face = colour if one.is_reached else "none"
                axes.plot(
                    one.parameters, one.plateau, "o", color=colour, markerfacecolor=face,
                    markersize=5,
                )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        if shown:
            low = min(one.plateau for one in shown)
            high = max(one.plateau for one in shown)
            axes.set_ylim(low / 3, high * 3)  # an interval may be far wider
        for one in (one for one in shown if one.interval):
            axes.plot([one.parameters] * 2, one.interval, color=PLACEHOLDERS["muted"], zorder=0)
        finish(axes, "parameters", "tokens")
        return to_svg(drawing, title)
