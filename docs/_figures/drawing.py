"""What pictures are made of: boxes, text, panels of squares."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from foreword.types import Array

DOCS = Path(__file__).resolve().parents[1]
CELL = 13  # pixels of a square
INK, MUTED, ACCENT, SECOND = (f"var(--{name})" for name in ("ink", "muted", "accent", "second"))


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
