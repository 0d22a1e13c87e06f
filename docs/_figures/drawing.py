"""What pictures are made of: plots, boxes, text, panels of squares."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from foreword import figures
from foreword.types import Array

DOCS = Path(__file__).resolve().parents[1]
WIDTH = 4.45  # inches of a plot
PIXELS_PER_POINT = 96 / 72
# Colours of plots, which the SVG text replaces by the page's: `var(--ink)` and so on.
PLACEHOLDERS = {
    **{
        name: f"#{n:06x}"
        for n, name in enumerate(("ink", "muted", "grid", "accent", "second"), 257)
    },
    **{f"cell{n}": f"#1{n:x}1{n:x}1{n:x}" for n in range(12)},
}
STYLE = {
    **figures.STYLE,
    **{f"{name}.color": PLACEHOLDERS["muted"] for name in ("xtick", "ytick")},
    "axes.edgecolor": PLACEHOLDERS["grid"],
    "axes.labelcolor": PLACEHOLDERS["muted"],
    "text.color": PLACEHOLDERS["ink"],
    "svg.fonttype": "none",  # text stays text, in the fonts of the page
    **{f"axes.spines.{side}": False for side in ("top", "right", "left")},
}
CELL = 13  # pixels of a square
INK, MUTED, ACCENT, SECOND = (f"var(--{name})" for name in ("ink", "muted", "accent", "second"))


@contextmanager
def canvas(height: float, salt: str) -> Iterator[tuple[Figure, Any]]:
    """Yield a figure without a background, and its axes.

    Args:
        height: in inches.
        salt: text by which the ids of this plot differ from those of others on the page.
    """
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": salt}):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        figure.patch.set_alpha(0)
        axes: Any = figure.add_subplot()
        axes.patch.set_alpha(0)
        yield figure, axes


def to_svg(figure: Figure, title: str) -> str:
    """Return the `<svg>` element alone, in the page's colours, at its natural size."""
    data = io.BytesIO()
    figure.savefig(data, format="svg", metadata={"Date": None, "Creator": None})
    svg = data.getvalue().decode()
    svg = svg[svg.index("<svg") :].strip()
    for name, colour in PLACEHOLDERS.items():
        svg = svg.replace(colour, f"var(--{name})")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert box is not None
    width, height = (round(float(side) * PIXELS_PER_POINT) for side in box.groups())
    head = (
        f'<svg {box[0]} width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(title)}" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return head + svg[svg.index(">") + 1 :]


def svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    """Return an `<svg>` of shapes."""
    head = f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    return f'{head} role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'


def text(
    x: float, y: float, words: str, anchor: str = "middle", fill: str = INK, size: int = 12
) -> str:
    """Return a line of text."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{fill}" font-size="{size}">{escape(words)}</text>'


def box(
    x: float,
    y: float,
    opacity: float,
    fill: str = ACCENT,
    width: float = CELL,
    height: float = CELL,
) -> str:
    """Return a filled square or rectangle."""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width - 1:.1f}" height="{height - 1:.1f}"'
    return f'<rect {place} rx="2" fill="{fill}" fill-opacity="{opacity:.3f}"/>'


def squares(
    panels: Sequence[tuple[str, Array]],
    title: str,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    across: int = 3,
    cell: int = CELL,
) -> str:
    """Return matrices of numbers from 0 to 1 as squares, each under its name.

    Args:
        panels: names and matrices.
        title: for screen readers.
        rows: words at the left of the first matrix of a line.
        columns: words above each matrix, upright.
        across: matrices in a line.
    """
    left = 8 + max((7.2 * len(word) for word in rows), default=0)
    above = (26 if panels[0][0] else 4) + max((7 * len(word) for word in columns), default=0)
    step = max(max(m.shape[1] * cell, 7 * len(name)) + 26 for name, m in panels)
    parts, y = list[str](), 0.0
    for first in range(0, len(panels), across):
        for number, (name, matrix) in enumerate(panels[first : first + across]):
            x0, y0 = left + number * step, y + above
            parts.append(text(x0, y + 14, name, "start"))
            for j, word in enumerate(columns):
                place = f"translate({x0 + (j + 0.75) * cell:.1f} {y0 - 4:.1f}) rotate(-90)"
                label = f'fill="{MUTED}" font-size="11">{escape(word)}'
                parts.append(f'<text transform="{place}" {label}</text>')
            for i, row in enumerate(matrix):
                if rows and number == 0:
                    parts.append(text(x0 - 6, y0 + (i + 0.75) * cell, rows[i], "end", MUTED, 11))
                for j, value in enumerate(row):
                    place = x0 + j * cell, y0 + i * cell
                    parts.append(box(*place, 0.07 + 0.93 * float(value), ACCENT, cell, cell))
        y += above + cell * max(m.shape[0] for _, m in panels[first : first + across]) + 14
    return svg(left + min(across, len(panels)) * step, y, title, parts)
