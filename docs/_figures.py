"""The pictures of the book, each drawn by the code that its chapter explains.

A function returns an `<svg>` in the colours of the page; `{picture} NAME` shows it. They train
nothing that takes longer than a second, and draw the same each time.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
import torch

from foreword.cleaning.steps.near_duplicates import NearDuplicates
from foreword.data.mixture import effective_epochs
from foreword.data.rng import RowRng
from foreword.ngrams.counting import count
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.table import NgramTable
from foreword.nn.masks import CausalMask, MemoryMask, PermutationMask
from foreword.objectives.replaced_token import ReplacedToken
from foreword.objectives.span_corruption import SpanCorruption
from foreword.reports.svg import PLACEHOLDERS, canvas, to_svg
from foreword.scaling.law import losses
from foreword.scaling.runs import read_runs
from foreword.scaling.surface import Surface
from foreword.settings import kinds
from foreword.testing import layouts as layout_cases
from foreword.testing.cases import vocab
from foreword.text import special
from foreword.tuning.tasks.prefer import Prefer
from foreword.types import Array, Rows, Vocab

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


# 10. Long context and permutation

ORDER = (-1, 2, 0, -1, 1, -1)  # places in the order of prediction; -1 is context


def permutation() -> str:
    """XLNet's two masks for one order of prediction, and a row with Transformer-XL's memory."""
    n, cpu = len(ORDER), torch.device("cpu")
    order = torch.tensor([ORDER])
    content = PermutationMask(order).dense(1, n, n, cpu)[0, 0].numpy()
    query = PermutationMask(order, includes_self=False).dense(1, n, n, cpu)[0, 0].numpy()
    memory = MemoryMask(CausalMask(), 4).dense(1, n, 4 + n, cpu)[0, 0].numpy()
    query = query & (np.array(ORDER) >= 0)[:, None]
    words = ["context" if place < 0 else f"predicted as no. {place + 1}" for place in ORDER]
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
    with (Path(__file__).parent / "book" / "data" / name).open(
        encoding="utf-8", newline=""
    ) as file:
        return list(csv.DictReader(file))


def loss_surface() -> str:
    """The plane that `foreword drift` measured, book/data/loss_plane.csv."""
    rows = _read("loss_plane.csv")
    x, y = (sorted({float(row[axis]) for row in rows}) for axis in ("x", "y"))
    loss = {(float(row["x"]), float(row["y"])): float(row["loss"]) for row in rows}
    surface = np.array([[loss[a, b] for a in x] for b in y])
    with canvas("half", 3.4, "loss_surface") as (figure, axes):
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
    with canvas("half", 2.9, "exposure") as (figure, axes):
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
    with canvas("half", 2.7, "repetition") as (figure, axes):
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
    with canvas("half", 2.7, "near_duplicates") as (figure, axes):
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
        one
        for one in read_runs(Path(__file__).parent / "results/scaling/runs.csv")
        if one.family == "decoder"
    ]
    is_largest = runs.flops > 0.9 * runs.flops.max()
    seen = runs.where(~is_largest)
    surface = Surface.of(seen.parameters, seen.tokens, seen.loss)
    ended, objective = surface.descents(np.ones((1, len(seen.loss))))
    values = surface.in_plain_units(ended[0, np.argsort(objective[0])[:1]])
    with canvas("half", 3.4, "scaling_fit") as (figure, axes):
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
    with canvas("half", 2.9, "preference_loss") as (figure, axes):
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
