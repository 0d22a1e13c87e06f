"""The pictures of the book, each drawn by the code that its chapter explains.

A function returns an `<svg>` in the colours of the page; `{picture} NAME` shows it. They train
nothing that takes longer than a second, and draw the same each time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
import torch

from foreword.ngrams.counting import count
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.table import NgramTable
from foreword.reports.svg import PLACEHOLDERS, canvas, to_svg
from foreword.settings import kinds
from foreword.testing import layouts as layout_cases
from foreword.testing.cases import vocab
from foreword.types import Array

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
    above = 26 + max((7 * len(word) for word in columns), default=0)
    high = max(matrix.shape[0] for _, matrix in panels) * CELL + above + 14
    wide = [max(m.shape[1] * CELL, 7 * len(name)) + 26 for name, m in panels]
    step = max(wide)
    parts = []
    for number, (name, matrix) in enumerate(panels):
        x0, y0 = left + number % across * step, number // across * high
        parts.append(text(x0, y0 + 14, name, "start"))
        for j, word in enumerate(columns):
            x, y = x0 + (j + 0.75) * CELL, y0 + above - 4
            parts.append(
                f'<text transform="translate({x:.1f} {y:.1f}) rotate(-90)" fill="{MUTED}" '
                f'font-size="11">{escape(word)}</text>'
            )
        for i, row in enumerate(matrix):
            if rows and number % across == 0:
                parts.append(
                    text(x0 - 6, y0 + above + (i + 0.75) * CELL, rows[i], "end", MUTED, 11)
                )
            parts += [
                box(x0 + j * CELL, y0 + above + i * CELL, 0.07 + 0.93 * float(value))
                for j, value in enumerate(row)
            ]
    lines = -(-len(panels) // across)
    return svg(left + min(across, len(panels)) * step, lines * high, title, parts)


# 1. n-grams

WORDS = ("the", "cat", "sat", "dog", "ran", "mat")
SENTENCES = "the cat sat / the cat ran / the cat sat / the dog sat"


def smoothings() -> str:
    """The distribution after "the" in four sentences, by each smoothing."""
    ids = [0 if word == "/" else 1 + WORDS.index(word) for word in f"/ {SENTENCES}".split()]
    is_word = np.arange(1 + len(WORDS)) > 0
    names = ("maximum_likelihood", "add_k", "kneser_ney", "modified_kneser_ney")
    height = 0.8
    with (
        tempfile.TemporaryDirectory() as folder,
        canvas("half", 2.7, "smoothings") as (figure, axes),
    ):
        scratch = Scratch(Path(folder))
        levels = count(np.array(ids), 2, len(is_word), 0, scratch)
        for number, name in enumerate(names):
            smoothing = kinds.load("ngrams/smoothing", name)()
            table = NgramTable.of(levels, 0, smoothing, is_word, scratch)
            after = np.exp(table.distribution(np.array([[1]])))[0, 1:]  # of "the"
            places = np.arange(len(WORDS)) + (number - 1.5) * height / 4
            colour = PLACEHOLDERS[f"cell{number}"]
            axes.bar(places, after, height / 4, color=colour, label=name.replace("_", " "))
        axes.set_xticks(range(len(WORDS)), WORDS)
        axes.set_ylabel('P(word | "the")')
        axes.legend(frameon=False)
        return to_svg(figure, "Probability of each word after the, by four smoothings")


# 7. The Transformer

SOURCES, TARGETS = [5, 3], [4, 3]  # tokens of each document of a row


def layouts() -> str:
    """The mask of every layout, of two documents in one row: its rows look at its columns."""
    panels = []
    for name in kinds.names("layouts"):
        layout = kinds.load("layouts", name)()
        for form in layout_cases.accepted_forms(layout):
            documents = [[10 + i for i in range(n)] for n in SOURCES]
            targets = [[10 + i for i in range(n)] for n in TARGETS]
            example = layout_cases.example_of(form, documents, targets)
            batch = layout.arrange(example, vocab()).to("cpu")
            n = batch.ids.shape[1]
            mask = batch.mask.dense(1, n, n, torch.device("cpu"))[0, 0].numpy()
            panels.append((f"{name}, {form}", mask.astype(float)))
    return squares(panels, "The attention mask of each layout")
