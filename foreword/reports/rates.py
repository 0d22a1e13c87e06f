"""The page of learning rates: which was best at each width, depth and budget, and the rule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from html import escape

import numpy as np

from foreword.formatting import figure, power
from foreword.reports import fragments
from foreword.reports.page import page
from foreword.reports.svg import CELLS, PLACEHOLDERS, Size, canvas, to_svg
from foreword.reports.tables import Table
from foreword.scaling.rates import BestRate, RateRule

HEIGHTS: dict[Size, float] = {"wide": 4.0, "half": 3.4, "narrow": 3.2}  # inches


def rule_line(rule: RateRule | None) -> str:
    """Return the rule in words."""
    if rule is None:
        return "Rates of one width make no rule."
    by_flops = f" (FLOPs / 10¹³)^{rule.by_flops:.2f}" if rule.by_flops else ""
    return (
        f"best rate about {rule.rate:.3g} (width / 256)^{rule.by_width:.2f}{by_flops}, "
        f"typically within a factor of {rule.spread:.2f}"
    )


def rates_page(name: str, found: Sequence[BestRate], rule: RateRule | None) -> str:
    """Return the page of a family's rates."""
    columns = ["width", "layers", "FLOPs", "best rate", "loss", ""]
    rows = [
        [
            str(one.width),
            str(one.layers),
            power(one.flops),
            f"{one.rate:.3g}",
            figure(one.loss),
            "at the edge of those tried" if one.is_at_edge else "",
        ]
        for one in found
    ]
    title = f"{name}: best learning rate by width and depth"
    draw = partial(_plot, found, rule, escape(title, quote=True))
    caption = "Best rate by width (layers beside the points), by budget. Hollow: at an edge"
    body = [
        f'<p class="note">{escape(rule_line(rule))}</p>',
        fragments.figure(caption, draw, is_large=True),
        Table(columns, rows, [True] * 5 + [False]).html(),
    ]
    return page(title, "\n".join(body))


def _plot(found: Sequence[BestRate], rule: RateRule | None, title: str, size: Size) -> str:
    """Return an `<svg>` of the best rates against width: a colour a budget, with the rule."""
    widths = np.array(sorted({one.width for one in found}))
    with canvas(size, HEIGHTS[size], title) as (drawing, axes):
        for number, flops in enumerate(sorted({one.flops for one in found})):
            colour = PLACEHOLDERS[f"cell{number % CELLS}"]
            for one in (one for one in found if one.flops == flops):
                face = "none" if one.is_at_edge else colour
                axes.plot(one.width, one.rate, "o", color=colour, markerfacecolor=face)
                axes.annotate(
                    str(one.layers), (one.width, one.rate), xytext=(5, 3),
                    textcoords="offset points", color=colour,
                )  # fmt: skip
            line = [np.nan] * len(widths)
            if rule is not None:
                line = [rule.of(int(width), flops) for width in widths]
            axes.plot(widths, line, color=colour, linewidth=1.2, label=power(flops))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(widths, [str(width) for width in widths], minor=False)
        axes.set_xlabel("width")
        axes.set_ylabel("learning rate")
        drawing.legend(title="training FLOPs", frameon=False, loc="outside lower center", ncols=3)
        return to_svg(drawing, title)
