"""The page of learning rates: which was best at each width, depth and budget, and the rule."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from foreword.formatting import figure, power
from foreword.reports.charts import CELLS, Chart, ChartAxis, Line
from foreword.reports.page import page
from foreword.reports.tables import Table
from foreword.scaling.rates import BestRate, RateRule

HEIGHT = 360  # pixels


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
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(rule_line(rule))}</p>',
        _chart(found, rule).html(),
        Table(columns, rows, [True] * 5 + [False]).html(),
    ]
    return page(title, "\n".join(body))


def _chart(found: Sequence[BestRate], rule: RateRule | None) -> Chart:
    """Return the best rates against width: a colour a budget, with the rule."""
    widths, lines = sorted({one.width for one in found}), list[Line]()
    for n, flops in enumerate(sorted({one.flops for one in found})):
        colour, name = f"cell{n % CELLS}", power(flops)
        for style, is_at_edge in (("points", False), ("hollow", True)):
            own = [one for one in found if one.flops == flops and one.is_at_edge == is_at_edge]
            x, y = [one.width for one in own], [one.rate for one in own]
            texts = [str(one.layers) for one in own]
            lines.append(Line(name, x, y, colour, style, texts=texts))
        if rule is not None:
            lines.append(Line("", widths, [rule.of(w, flops) for w in widths], colour, "dashed"))
    title = "Best rate by width (layers beside the points), by budget. Hollow: at an edge"
    x_axis = ChartAxis("width", log=True, ticks=widths)
    y_axis = ChartAxis("learning rate", log=True)
    return Chart(title, lines, x_axis, y_axis, legend="training FLOPs", height=HEIGHT)
