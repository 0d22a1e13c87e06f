"""The pictures of the book, each drawn by the code that its chapter explains.

A function returns an `<svg>` in the colours of the page; `{picture} NAME` shows it. They train
nothing that takes longer than a second, and draw the same each time.
"""

from __future__ import annotations

import csv
import io
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure

from foreword import figures
from foreword.cleaning.steps.near_duplicates import NearDuplicates
from foreword.data.mixture import effective_epochs
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
    MemoryMask,
    PermutationMask,
    WindowMask,
)
from foreword.nn.model import ModelSettings
from foreword.nn.positions.sinusoidal import Sinusoidal
from foreword.nn.source_attentions.dot import Dot
from foreword.objectives.masked import Masked
from foreword.objectives.replaced_token import ReplacedToken
from foreword.objectives.span_corruption import SpanCorruption
from foreword.objectives.span_masked import SpanMasked
from foreword.scaling.law import losses
from foreword.scaling.runs import read_runs
from foreword.scaling.surface import Surface
from foreword.settings import kinds
from foreword.testing import layouts as layout_cases
from foreword.testing.cases import vocab
from foreword.text import special
from foreword.text import trace as bpe
from foreword.tuning.tasks.prefer import Prefer
from foreword.types import Array, Batch, PredictionOrder, Rows, Vocab
from foreword.vectors.cooccurrence import learn_vectors

DOCS = Path(__file__).resolve().parent
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
        canvas(2.7, "smoothings") as (figure, axes),
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
    with canvas(2.7, "reach") as (figure, axes):
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
    with canvas(3.0, "length") as (figure, axes):
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

PIECES = ["the", "old", "fish", "er", "man", "went", "to", "the", "sea", "un", "expect", "ed"]
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


# 10. Long context and permutation

PERMUTED = (-1, 2, 0, -1, 1, -1)  # places in the order of prediction; -1 is context


def permutation() -> str:
    """XLNet's two masks for one order of prediction, and a row with Transformer-XL's memory."""
    n, cpu = len(PERMUTED), torch.device("cpu")
    order = torch.tensor([PERMUTED])
    content = PermutationMask(order).dense(1, n, n, cpu)[0, 0].numpy()
    query = PermutationMask(order, includes_self=False).dense(1, n, n, cpu)[0, 0].numpy()
    memory = MemoryMask(CausalMask(), 4).dense(1, n, 4 + n, cpu)[0, 0].numpy()
    query = query & (np.array(PERMUTED) >= 0)[:, None]
    words = ["context" if place < 0 else f"predicted as no. {place + 1}" for place in PERMUTED]
    panels = [("content stream", content), ("query stream", query), ("a memory of 4", memory)]
    return squares(
        [(name, mask.astype(float)) for name, mask in panels],
        "Masks of XLNet and Transformer-XL",
        words,
    )


# 11. ELECTRA

TEXT = "the chef cooked the meal and the guests ate it all before he sat down"


def _row(seed: int, rng_row: int) -> tuple[Rows, RowRng, Vocab, list[str]]:
    """Return TEXT as a row, its random numbers, a vocabulary of its words, and their spellings."""
    words = sorted(set(TEXT.split()))
    spellings = [*special.ALL, *words]
    ids = np.array([[spellings.index(word) for word in TEXT.split()]])
    is_special = np.arange(len(spellings)) < len(special.ALL)
    counts = np.array([TEXT.split().count(word) for word in spellings])
    sentinels = np.arange(len(special.NAMES), len(special.ALL))
    names = {name: number for number, name in enumerate(special.NAMES)}
    vocabulary = Vocab(len(spellings), names, sentinels, is_special, ~is_special, counts=counts)
    documents, numbers = np.zeros_like(ids), np.array([rng_row])
    positions = np.arange(ids.shape[1])[None]
    return Rows(ids, documents, positions, numbers), RowRng(seed, numbers), vocabulary, spellings


def words_in_boxes(
    lines: Sequence[tuple[str, Sequence[tuple[str, float]]]], title: str, aligned: bool = False
) -> str:
    """Return lines of words, each after its name; a word's number is the opacity of its box."""
    parts, widest = [], 0.0
    left = 8 + max(7.0 * len(name) for name, _ in lines)
    columns = [
        max(len(word) for word, _ in column)
        for column in zip(*(words for _, words in lines), strict=False)
    ]
    for number, (name, words) in enumerate(lines):
        x, y = left, 8 + number * 30
        parts.append(text(left - 10, y + 15, name, "end", MUTED, 12))
        for column, (word, opacity) in enumerate(words):
            width = 6.8 * (columns[column] if aligned else len(word)) + 10
            if opacity:
                parts.append(box(x, y, opacity, ACCENT, width, 22))
            parts.append(text(x + width / 2, y + 15, word))
            x += width
        widest = max(widest, x)
    return svg(widest + 8, 8 + 30 * len(lines), title, parts)


def replaced_tokens() -> str:
    """A row as the text, as the generator reads it, and as the discriminator does."""
    rows, rng, vocabulary, spellings = _row(3, 1)
    chosen = ReplacedToken(rate=0.3, mask=1.0).corrupt(rows, rng, vocabulary)
    rows, rng, vocabulary, spellings = _row(3, 1)
    sampled = ReplacedToken(rate=0.3, replacements="unigram").corrupt(rows, rng, vocabulary)
    assert chosen.source is not None and sampled.source is not None
    masked, shown, own = chosen.source.ids[0], sampled.source.ids[0], rows.ids[0]
    lines = [
        ("text", [(word, 0.0) for word in TEXT.split()]),
        (
            "generator reads",
            [(spellings[i], 0.18 * (i != j)) for i, j in zip(masked, own, strict=True)],
        ),
        (
            "discriminator",
            [(spellings[i], 0.45 * (i != j)) for i, j in zip(shown, own, strict=True)],
        ),
        (
            "replaced?",
            [("yes" if i != j else "no", 0.45 * (i != j)) for i, j in zip(shown, own, strict=True)],
        ),
    ]
    return words_in_boxes(lines, "Replaced-token detection on a sentence", aligned=True)


# 12. Encoder-decoders


def spans() -> str:
    """A row, and its source and target with sentinels."""
    rows, rng, vocabulary, spellings = _row(2, 1)
    example = SpanCorruption(rate=0.3, mean_span=2.5).corrupt(rows, rng, vocabulary)
    assert example.source is not None
    first = {int(i): n for n, i in enumerate(vocabulary.sentinels)}

    def words(ids: Array) -> list[tuple[str, float]]:
        return [
            (f"<{first[i] + 1}>" if i in first else spellings[i], 0.4 * (i in first))
            for i in ids.tolist()
        ]

    kept = [i for i in example.source.ids[0].tolist() if i not in first]
    hidden, place = [], 0
    for i in rows.ids[0].tolist():
        is_kept = place < len(kept) and kept[place] == i
        place += is_kept
        hidden.append((spellings[i], 0.0 if is_kept else 0.18))
    lines = [
        ("row", hidden),
        ("source", words(example.source.ids[0])),
        ("target", words(example.target.ids[0])),
    ]
    return words_in_boxes(lines, "Spans and sentinels")


def architectures() -> str:
    """Who looks at whom in a decoder, a prefix decoder and an encoder-decoder."""
    source, target = [[10, 11, 12, 13]], [[20, 21, 22]]
    example = layout_cases.example_of("source", source, target)
    panels, cpu = [], torch.device("cpu")
    for name in ("decoder", "prefix"):
        batch = kinds.load("layouts", name)().arrange(example, vocab()).to(cpu)
        n = batch.ids.shape[1]
        panels.append((name, batch.mask.dense(1, n, n, cpu)[0, 0].numpy().astype(float)))
    batch = kinds.load("layouts", "encoder_decoder")().arrange(example, vocab()).to(cpu)
    assert batch.source is not None and batch.cross_mask is not None
    s, t = batch.source.ids.shape[1], batch.ids.shape[1]
    for name, mask, queries, keys in (
        ("encoder", batch.source.mask, s, s),
        ("its decoder", batch.mask, t, t),
        ("cross-attention", batch.cross_mask, t, s),
    ):
        panels.append((name, mask.dense(1, queries, keys, cpu)[0, 0].numpy().astype(float)))
    return squares(panels, "Masks of three architectures", across=5)


# 14. Fine-tuning


def _read(name: str) -> list[dict[str, str]]:
    with (DOCS / "book" / "data" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def loss_surface() -> str:
    """The plane that `foreword drift` measured, book/data/loss_plane.csv."""
    rows = _read("loss_plane.csv")
    x, y = (sorted({float(row[axis]) for row in rows}) for axis in ("x", "y"))
    loss = {(float(row["x"]), float(row["y"])): float(row["loss"]) for row in rows}
    surface = np.array([[loss[a, b] for a in x] for b in y])
    with canvas(3.4, "loss_surface") as (figure, axes):
        levels = np.geomspace(max(surface.min(), 0.05), surface.max(), 12)
        drawn = axes.contour(
            x, y, surface, levels=levels, colors=PLACEHOLDERS["accent"], linewidths=0.8
        )
        axes.clabel(drawn, fmt="%.2g", fontsize=7)
        for place, name in (
            ((0, 0), "pretrained"),
            ((1, 0), "tuned"),
            ((0, 1), "from random weights"),
        ):
            axes.plot(*place, "o", color=PLACEHOLDERS["second"])
            axes.annotate(name, place, xytext=(5, 5), textcoords="offset points")
        axes.set_xlabel("towards the tuned weights")
        axes.set_ylabel("towards those from random weights")
        return to_svg(figure, "The loss on a plane of weights")


# 15. What was learned


def exposure() -> str:
    """The exposure of planted secrets, book/data/exposure.csv."""
    with canvas(2.9, "exposure") as (figure, axes):
        for number, model in enumerate(("trained", "random weights")):
            rows = [row for row in _read("exposure.csv") if row["model"] == model]
            x = np.array([float(row["planted"]) for row in rows]) * (1 + 0.12 * number)
            colour = PLACEHOLDERS["accent" if number == 0 else "muted"]
            axes.plot(
                x, [float(row["bits"]) for row in rows], "o", color=colour, label=model, alpha=0.8
            )
        axes.axhline(np.log2(1024), color=PLACEHOLDERS["muted"], linestyle="--", linewidth=1)
        axes.axhline(1 / np.log(2), color=PLACEHOLDERS["muted"], linestyle=":", linewidth=1)
        axes.set_xscale("log", base=4)
        axes.set_xticks([1, 4, 16, 64], ["1", "4", "16", "64"])
        axes.set_xlabel("times planted")
        axes.set_ylabel("exposure, bits")
        axes.legend(frameon=False, loc="center left")
        return to_svg(figure, "Exposure of planted secrets by how often they were planted")


# 16. Data


def repetition() -> str:
    """What epochs are worth."""
    with canvas(2.7, "repetition") as (figure, axes):
        epochs = np.geomspace(1, 100, 60)
        axes.plot(epochs, epochs, color=PLACEHOLDERS["muted"], linestyle=":", label="new text")
        worth = [effective_epochs(one) for one in epochs]
        axes.plot(epochs, worth, color=PLACEHOLDERS["accent"], label="the same text")
        axes.set_xscale("log")
        axes.set_ylim(0, 20)
        axes.set_xticks([1, 4, 16, 40, 100], ["1", "4", "16", "40", "100"])
        axes.set_xlabel("epochs")
        axes.set_ylabel("worth, in epochs of new text")
        axes.legend(frameon=False)
        return to_svg(figure, "What reading a text again is worth")


def near_duplicates() -> str:
    """The chance that two texts are compared, by the sequences of words that they share."""
    with canvas(2.7, "near_duplicates") as (figure, axes):
        share = np.linspace(0, 1, 101)
        published, copies = (
            NearDuplicates(),
            NearDuplicates(ngram=3, buckets=80, hashes=4, min_similarity=0.3),
        )
        for name, step, colour in (("gopher", published, "muted"), ("copies", copies, "accent")):
            found = 1 - (1 - share**step.hashes) ** step.buckets
            axes.plot(share, found, color=PLACEHOLDERS[colour], label=name)
            same = (1 - np.array([0.05, 0.1, 0.2])) ** step.ngram
            marks = same / (2 - same)
            axes.plot(
                marks, 1 - (1 - marks**step.hashes) ** step.buckets, "o", color=PLACEHOLDERS[colour]
            )
        axes.set_xlabel("share of their word sequences that two texts share")
        axes.set_ylabel("chance to be compared")
        axes.legend(frameon=False)
        return to_svg(figure, "The chance that near duplicates are compared")


# 17. Scaling


def scaling_fit() -> str:
    """The losses of decoders by tokens and size, and the law fitted without the largest budget."""
    (runs,) = [
        one for one in read_runs(DOCS / "results/scaling/runs.csv") if one.family == "decoder"
    ]
    is_largest = runs.flops > 0.9 * runs.flops.max()
    seen = runs.where(~is_largest)
    surface = Surface.of(seen.parameters, seen.tokens, seen.loss)
    ended, objective = surface.descents(np.ones((1, len(seen.loss))))
    values = surface.in_plain_units(ended[0, np.argsort(objective[0])[:1]])
    with canvas(3.4, "scaling_fit") as (figure, axes):
        for number, size in enumerate(sorted(set(runs.parameters))):
            colour = PLACEHOLDERS[f"cell{number}"]
            of_size = runs.parameters == size
            label = f"{size / 1e6:.1f} M"
            for mark, which in (("o", of_size & ~is_largest), ("x", of_size & is_largest)):
                axes.plot(
                    runs.tokens[which],
                    runs.loss[which],
                    mark,
                    color=colour,
                    label=label if mark == "o" else None,
                )
            tokens = np.geomspace(runs.tokens[of_size].min(), runs.tokens[of_size].max(), 30)
            axes.plot(
                tokens,
                losses(values, float(size), tokens[:, None])[:, 0],
                color=colour,
                linewidth=1,
            )
        axes.set_xscale("log")
        axes.set_xticks([1e5, 3e5, 1e6, 3e6], ["0.1 M", "0.3 M", "1 M", "3 M"])
        axes.minorticks_off()
        axes.set_xlabel("tokens")
        axes.set_ylabel("bits per byte")
        axes.legend(frameon=False, title="parameters")
        return to_svg(figure, "Losses of decoders and the fitted law")


# 18. Post-training


def preference_loss() -> str:
    """The loss of a pair of answers by its margin, and its pull, by the task's own loss."""
    margins = torch.linspace(-40, 40, 161)
    with canvas(2.9, "preference_loss") as (figure, axes):
        for number, beta in enumerate((0.03, 0.1, 0.3)):
            task, found, pull = Prefer(beta=beta), [], []
            targets = torch.tensor(
                [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
            )  # of the chosen, the rejected answer
            for margin in margins:
                nats = torch.tensor([[0.0, -float(margin)], [0.0, 0.0]], requires_grad=True)
                loss = task.loss(nats, targets, torch.tensor([0, 0]))
                loss.total.backward()
                assert nats.grad is not None
                found.append(float(loss.total.detach()))
                pull.append(float(nats.grad[0, 1]))
            colour = PLACEHOLDERS[f"cell{number}"]
            axes.plot(margins, found, color=colour, label=f"\u03b2 = {beta}")
            axes.plot(margins, np.array(pull) * 10, color=colour, linestyle="--", linewidth=1)
        axes.set_ylim(0, 4)
        axes.set_xlabel("margin, nats")
        axes.set_ylabel("loss; dashed: 10 times its pull")
        axes.legend(frameon=False)
        return to_svg(figure, "The loss of a preference by its margin")
