"""The pictures of the book, each drawn by the code that its chapter explains.

A function returns an `<svg>` in the colours of the page; `{picture} NAME` shows it. They train
nothing that takes longer than a second, and draw the same each time.
"""

from __future__ import annotations

import csv
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

import numpy as np
import torch

from foreword.data.rng import RowRng
from foreword.models.fixed_window import FixedWindow
from foreword.models.lstm import LSTM
from foreword.models.rnn import RNN
from foreword.models.transformer import Transformer
from foreword.ngrams.counting import count
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.table import NgramTable
from foreword.nn.attentions.bigbird import BigBird
from foreword.nn.masks import (
    CausalMask,
    FullMask,
    GlobalMask,
    WindowMask,
)
from foreword.nn.model import ModelSettings
from foreword.nn.positions.sinusoidal import Sinusoidal
from foreword.nn.source_attentions.dot import Dot
from foreword.objectives.masked import Masked
from foreword.objectives.span_masked import SpanMasked
from foreword.reports.svg import PLACEHOLDERS, canvas, to_svg
from foreword.settings import kinds
from foreword.testing import layouts as layout_cases
from foreword.testing.cases import vocab
from foreword.text import trace as bpe
from foreword.types import Array, Batch, PredictionOrder, Rows
from foreword.vectors.cooccurrence import learn_vectors

DOCS = Path(__file__).resolve().parent
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


# 2. Neural language models


def influence(architecture: ModelSettings, length: int, positions: Sequence[int] = ()) -> Array:
    """Return how much the state of positions (all) depends on each token, (positions, length).

    The norms of the gradients of random sums of the states, of a model with random weights.
    """
    torch.manual_seed(3)
    backbone = architecture.build(vocab().size).double()
    ids = torch.arange(length)[None] % vocab().size
    batch = Batch(ids, torch.arange(length)[None], CausalMask())
    hidden = backbone.with_layer_gradients(batch)
    state_of = torch.randn(hidden.states.shape[-1], dtype=torch.double)
    rows = []
    for at in positions or range(length):
        (gradient,) = torch.autograd.grad(
            hidden.states[0, at] @ state_of, hidden.layers[0], retain_graph=True
        )
        rows.append(gradient[0].norm(dim=-1))
    return torch.stack(rows).numpy()


def sees() -> str:
    """What each position of a fixed window, a recurrent network and a decoder depends on."""
    size = {"d_model": 32, "tied": False}
    models = {
        "window of 4": FixedWindow(window=4, **size),
        "RNN": RNN(layers=1, **size),
        "Transformer": Transformer(layers=1, heads=2, **size),
    }
    panels = []
    for name, model in models.items():
        strength = influence(model, 14)
        panels.append((name, np.sqrt(strength / strength.max(axis=1, keepdims=True))))
    return squares(panels, "How much each state depends on each token")


# 3. Recurrent networks


def reach() -> str:
    """The gradient of the last state with respect to the inputs before it."""
    length = 48
    models = {
        "RNN": RNN(layers=1, d_model=64, tied=False),
        "LSTM": LSTM(layers=1, d_model=64, tied=False),
        "Transformer": Transformer(layers=1, heads=2, d_model=64, tied=False),
    }
    with canvas("half", 2.7, "reach") as (figure, axes):
        for number, (name, model) in enumerate(models.items()):
            norms = influence(model, length, [length - 1])[0, ::-1]
            colour = PLACEHOLDERS[f"cell{number}"]
            axes.plot(range(1, length), norms[1:] / norms[1], color=colour, label=name)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:.0e}")
        axes.set(xlabel="steps back", ylabel="norm, of that one step back")
        axes.legend(frameon=False)
        return to_svg(figure, "Gradient against steps back, random weights")


# 4. Attention

SOURCE, TARGET = ("the", "black", "cat", "sleeps"), ("le", "chat", "noir", "dort")
MEANT = (0, 2, 1, 3)  # the word of the source that each word of the target translates


def alignment() -> str:
    """Luong's inner products on states made by hand, of three lengths."""
    source = torch.eye(len(SOURCE))[None] + 0.15
    target = source[:, list(MEANT)]
    attention = Dot().build(source.shape[-1])
    is_token = torch.ones(source.shape[:2], dtype=torch.bool)
    panels = []
    for scale in (0.0, 1.0, 2.0):
        queries, keys = target * scale, source * scale
        _, weights = attention(queries, keys, attention.prepare(keys), is_token)
        panels.append((f"states times {scale:g}", weights[0].numpy()))
    return squares(panels, "Attention of each target word to the source", TARGET, SOURCE)


# 5. Subwords

DICTIONARY = {"low": 5, "lower": 2, "newest": 6, "widest": 3}


def merges() -> str:
    """The tree of merges of each word, with the number of the merge at each join."""
    steps = bpe.learn(DICTIONARY)
    number_of = {step.pair: number for number, step in enumerate(steps, 1)}
    width, level, left, parts = 24, 24, 20.0, list[str]()
    bottom = 24 + level * 4
    for word in (*DICTIONARY, "lowest"):
        symbols = [(letter, left + width * (n + 0.5), 0) for n, letter in enumerate(word)]
        parts += [text(x, bottom + 16, letter) for letter, x, _ in symbols]
        label = f"{word}, {DICTIONARY[word]} times" if word in DICTIONARY else f"{word}, unseen"
        parts.append(text(left + width * len(word) / 2, bottom + 34, label, fill=MUTED, size=11))
        for step in steps:
            merged, at = [], 0
            while at < len(symbols):
                pair = symbols[at : at + 2]
                if tuple(symbol for symbol, _, _ in pair) != step.pair:
                    merged.append(symbols[at])
                    at += 1
                    continue
                (a, xa, ha), (b, xb, hb) = pair
                high = max(ha, hb) + 1
                y = bottom - level * high
                path = f"M{xa},{bottom - level * ha} V{y} H{xb} V{bottom - level * hb}"
                parts.append(f'<path d="{path}" fill="none" stroke="{ACCENT}" stroke-width="1.5"/>')
                number = str(number_of[step.pair])
                parts.append(text((xa + xb) / 2 + 3, y - 4, number, "start", size=11))
                merged.append((a + b, (xa + xb) / 2, high))
                at += 2
            symbols = merged
        left += width * len(word) + 28
    return svg(left, bottom + 44, "Merges of byte-pair encoding as trees", parts)


# 6. Word vectors

LOOKED_UP = [
    "loss",
    "perplexity",
    "encoder",
    "decoder",
    "tokens",
    "words",
    "hours",
    "minutes",
    "seeds",
    "labels",
]


def counted() -> str:
    """Cosines of word vectors that are counted from the text of these documents."""
    prose = " ".join(file.read_text(encoding="utf-8") for file in sorted(DOCS.glob("**/*.md")))
    words = re.findall(r"[a-z]+", prose.lower())
    names = sorted(set(words))
    index = {name: n for n, name in enumerate(names)}
    ids = np.array([index[word] for word in words])
    is_word = np.ones(len(names), dtype=bool)
    vectors = learn_vectors([(ids, len(ids))], is_word, 32, 1).vectors
    chosen = vectors[[index[word] for word in LOOKED_UP]]
    cosines = np.clip(chosen @ chosen.T, 0, 1)
    return squares([("", cosines)], "Cosines of word vectors", LOOKED_UP, LOOKED_UP)


# 7. The Transformer

SOURCES, TARGETS = [5, 3], [4, 3]  # tokens of each document of a row
ORDER = [2, 0, 4, 1, 3, 6, 7, 5]  # when each position of a row is predicted
FORMS = {"source": ", source and target", "rows": ", masked rows", "order": ", in an order"}


def layouts() -> str:
    """The mask of every layout, of two documents in one row: its rows look at its columns."""
    panels = []
    for name in kinds.names("layouts"):
        layout = kinds.load("layouts", name)()
        for form in layout_cases.accepted_forms(layout):
            documents = [[10 + i for i in range(n)] for n in SOURCES]
            targets = [[10 + i for i in range(n)] for n in TARGETS]
            example = layout_cases.example_of(form, documents, targets)
            if form == "order":
                example = replace(example, parts=(PredictionOrder(np.array([ORDER])),))
            batch = layout.arrange(example, vocab()).to("cpu")
            name_of = name.replace("_", " ") + FORMS.get(form, "")
            n, cpu = batch.ids.shape[1], torch.device("cpu")
            panels.append((name_of, batch.mask.dense(1, n, n, cpu)[0, 0].numpy() * 1.0))
            if batch.source is not None:
                m = batch.source.ids.shape[1]
                cross = batch.cross_mask.dense(1, n, m, cpu)[0, 0].numpy() * 1.0
                panels[-1] = (name.replace("_", " "), panels[-1][1])
                panels.append(("target looks at source", cross))
    panels.sort(key=lambda panel: panel[1].shape[0])
    return squares(panels, "The attention mask of each layout", across=4)


def sinusoids() -> str:
    """Sinusoidal positions: a row for each position, a column for each dimension."""
    scheme = Sinusoidal(base=1000.0).build(24, 1, 24, layers=1, is_causal=True)
    embedded = scheme.embed(torch.arange(16)[None])[0]
    return squares([("", (embedded.numpy() + 1) / 2)], "Sinusoidal positions")


# 8. Cheaper attention


def sparse() -> str:
    """What each kind of attention looks at, in a row of 24."""
    n, cpu = 24, torch.device("cpu")
    window = WindowMask(3)
    (bigbird,) = BigBird(block=2, random=1, ends=1).build(1, 16, 1)
    masks = {
        "full": FullMask(),
        "window": window,
        "window, causal": window & CausalMask(),
        "window and 2 global": window | GlobalMask(2),
        "BigBird": bigbird.mask(n, n),
    }
    panels = [(name, mask.dense(1, n, n, cpu)[0, 0].numpy() * 1.0) for name, mask in masks.items()]
    return squares([*panels, ("Linformer, 6 keys", np.ones((n, 6)))], "Sparse attention", cell=8)


def time_of_length() -> str:
    """The measured time of one layer's attention by the length of its row."""
    with (DOCS / "results" / "attention_length.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["what"] == "attention"]
    with canvas("half", 3.0, "length") as (figure, axes):
        for number, kind in enumerate(dict.fromkeys(row["kind"] for row in rows)):
            own = [row for row in rows if row["kind"] == kind]
            x, y = ([float(row[key]) for row in own] for key in ("length", "seconds"))
            axes.plot(x, y, color=PLACEHOLDERS[f"cell{number}"], label=kind.replace("_", " "))
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:.0e}")
        axes.set(xlabel="length of the row", ylabel="seconds, forward and backward")
        axes.legend(frameon=False, fontsize=8)
        return to_svg(figure, "Time of attention by length")


# 9. Encoders

PIECES = [
    "the",
    "old",
    "fish",
    "er",
    "man",
    "went",
    "to",
    "the",
    "sea",
    "and",
    "found",
    "an",
    "un",
    "expect",
    "ed",
    "friend",
    "there",
]
INSIDE = {"er", "man", "expect", "ed"}  # pieces that continue a word


def masking() -> str:
    """What each objective hides and predicts in one sentence: three draws each."""
    first = int((~vocab().is_special).argmax())
    ids = first + np.arange(len(PIECES))
    starts = np.zeros(vocab().size, dtype=bool)
    starts[ids] = [piece not in INSIDE for piece in PIECES]
    known = replace(vocab(), starts_word=starts)
    kinds_of = {
        "tokens (BERT)": Masked(rate=0.3),
        "whole words": Masked(rate=0.3, whole_words=True),
        "spans (SpanBERT)": SpanMasked(rate=0.3),
    }
    step, high, left, parts = 50, 24, 130.0, []
    for row, (name, objective) in enumerate(kinds_of.items()):
        parts.append(text(left - 10, 15 + (3 * row + 1) * high + 8 * row, name, "end"))
        rows = Rows(
            *(np.tile(one, (3, 1)) for one in (ids, 0 * ids, ids - first)), np.arange(7, 10)
        )
        example = objective.corrupt(rows, RowRng(1, rows.numbers), known)
        for draw in range(3):
            y = (3 * row + draw) * high + 8 * row
            for n, piece in enumerate(PIECES):
                shown, scored = int(example.source.ids[draw, n]), bool(example.weights[draw, n])
                word = piece if shown == ids[n] else "[MASK]"
                if word == "[MASK]" and shown != known.id("[MASK]"):
                    word = PIECES[shown - first] if first <= shown < first + len(ids) else "other"
                fill = (SECOND if word != "[MASK]" else ACCENT) if scored else MUTED
                parts.append(box(left + n * step, y, 0.3 if scored else 0.08, fill, step, high - 2))
                parts.append(text(left + (n + 0.5) * step, y + 15, word, size=11))
    return svg(left + step * len(PIECES), 9 * high + 20, "What is masked", parts)
