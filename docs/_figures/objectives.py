"""The pictures of encoders, ELECTRA and encoder-decoders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from _figures.drawing import ACCENT, MUTED, SECOND, box, squares, svg, text
from foreword.data.rng import RowRng
from foreword.objectives.masked import Masked
from foreword.objectives.replaced_token import ReplacedToken
from foreword.objectives.span_corruption import SpanCorruption
from foreword.objectives.span_masked import SpanMasked
from foreword.settings import kinds
from foreword.testing import layouts as layout_cases
from foreword.testing.cases import vocab
from foreword.text import special
from foreword.types import Array, Rows, Vocab

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
