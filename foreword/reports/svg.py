"""SVG plots that take colours and fonts from the page and have the same font size everywhere.

A plot is shown at its natural size and never stretched. For each width of the screen there is a
plot of its own, `responsive`, so that none is shrunk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
from matplotlib.figure import Figure

from foreword import figures

Size = Literal["wide", "half", "narrow"]
INCHES: dict[Size, float] = {"wide": 9.4, "half": 4.45, "narrow": 3.2}  # widths
SMALL: tuple[Size, ...] = ("half", "narrow")  # drawn of a plot that is never wide
LARGE: tuple[Size, ...] = ("wide", "half", "narrow")
PIXELS_PER_POINT = 96 / 72
CELLS = 12  # colours of compared cells; further cells repeat them
# Placeholder colours, which the SVG text replaces by the page's: `var(--ink)` and so on.
PLACEHOLDERS = {
    "ink": "#010203",
    "muted": "#040506",
    "grid": "#070809",
    "accent": "#0a0b0c",
    "second": "#0d0e0f",
    **{f"cell{n}": f"#1{n:x}1{n:x}1{n:x}" for n in range(CELLS)},
}
STYLE = {
    **figures.STYLE,
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


def responsive(draw: Callable[[Size], str], *, is_large: bool = False) -> str:
    """Return a plot for each width of the screen, of which the page shows one.

    Args:
        draw: returns the `<svg>` of a size.
        is_large: whether it takes the page's whole width on wide screens, or half of it.
    """
    sizes, large = (LARGE, " large") if is_large else (SMALL, "")
    return "".join(f'<div class="{size}{large}">{draw(size)}</div>' for size in sizes)


@contextmanager
def canvas(size: Size, height: float, salt: str) -> Iterator[tuple[Figure, Any]]:
    """Yield a figure with a transparent background, and its axes, in the page's style.

    Args:
        height: in inches.
        salt: text by which the ids of this plot differ from those of others on the page.
    """
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": f"{salt} {size}"}):
        figure = Figure(figsize=(INCHES[size], height), layout="constrained")
        figure.patch.set_alpha(0)
        axes: Any = figure.add_subplot()
        axes.patch.set_alpha(0)
        yield figure, axes


def to_svg(figure: Figure, title: str) -> str:
    """Return the `<svg>` element alone, in the page's colours, at its natural size.

    Args:
        title: escaped text for screen readers.
    """
    svg = figures.render(figure, "svg").data.decode("utf-8")
    svg = svg[svg.index("<svg") :].strip()
    for name, colour in PLACEHOLDERS.items():
        svg = svg.replace(colour, f"var(--{name})")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert box is not None
    width, height = (round(float(side) * PIXELS_PER_POINT) for side in box.groups())
    head = (
        f'<svg {box[0]} width="{width}" height="{height}" role="img" aria-label="{title}" '
        'xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return head + svg[svg.index(">") + 1 :]
