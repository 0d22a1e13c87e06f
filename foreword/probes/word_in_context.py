"""Is one word's vector the same in two contexts? "I record the record"."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.metrics import roc_auc_score

from foreword.errors import UserError
from foreword.evaluate.prompting import PromptedModel
from foreword.evaluate.states import WordStates, vectors
from foreword.probes._contract import Finding, ProbedModel, Row
from foreword.probes._marks import MAX_RUNS, run_style, title
from foreword.probes._words import AmbiguousWord, read_words
from foreword.types import Array

ALONE = "alone"  # the layer of the embeddings, which know no context
MOST_NAMED = 8  # unknown words that are named
SEED, DRAWS = 1, 10_000
LEVEL = 0.95
RUN_OFFSET = 0.08  # of the way from layer to layer, from run to run in the plot


class CosinePair(NamedTuple):
    """The cosine of a word's vectors in two sentences, and whether its sense is the same there."""

    cosine: float
    is_same: bool


@dataclass(frozen=True)
class WordInContext:
    """The cosine of a word's vectors in two sentences, of one sense and of two, layer by layer.

    Where the vectors know no context it is 1. Where the context enters, it is less; and where the
    sense is known it is less between two senses than within one. So three figures for each layer:
    the mean cosine within a sense and between senses; their difference, a mean over words, with a
    bootstrap interval over words; and how well the cosine tells the two kinds of pairs apart, the
    area under the curve (AUC; 0.5 is chance, 1 is perfect), over all pairs of all words.

    Layer `alone` is the embedding of the word's tokens and nothing else: word2vec has no more.
    Layer 0 is what enters the first layer: the same with its place, in models that add it there.
    Layer n is what leaves the n-th. Of an encoder-decoder they are the encoder's. A model that
    reads from the left knows of each sentence only what stands before the word.

    The vector of a word that is cut into pieces is the mean over the pieces. Words with an unknown
    piece are left out, and named.

    Attributes:
        words: `english`, `korean`, or a TOML file of the same form as these.

    Reference: Peters et al. 2018, section 5.3; Ethayarajh 2019; Pilehvar & Camacho-Collados 2019.
    Differs from the papers: the sentences are written for Foreword and few; they show the effect
    and rank no models. In the English ones the word right before it is the same each time, so that
    a network with random weights is near chance; see it beside the trained one.
    """

    reads_text: ClassVar[bool] = False

    words: str = "english"

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """The cosines in each layer of each model.

        Raises:
            UserError: the list cannot be read, or a model has no vectors or knows none of its
                words; all models are asked before the first one is looked into.
        """
        words = read_words(self.words)
        for probed in models:
            _require_known_word(probed.trained, words)
        rows: list[Row] = []
        details: list[Row] = []
        notes: list[str] = []
        for probed in models:
            pairs, unknown, cut = _pairs_by_layer(probed, words)
            for layer, found in pairs.items():
                here = {"run": probed.label, "layer": layer}
                rows.append({**here, **_figures(found)})
                details += [
                    {**here, "word": word, "same": _mean(of, True), "other": _mean(of, False)}
                    for word, of in found.items()
                ]
            has_layers = len(pairs) > 1
            notes += _notes(probed.label, len(words), unknown, cut, has_layers=has_layers)
        interval = f"{LEVEL:.0%} of {DRAWS:,} bootstrap draws over words"
        notes.append(
            "mean cosines within a sense (same) and between senses (other), and what sets them "
            f"apart; low, high: {interval}"
        )
        title = f"the cosine of a word's vectors in two sentences ({self.words})"
        return Finding(title, rows, details, notes, lambda figure: _plot(figure, rows))


PairsByWord = dict[str, list[CosinePair]]  # by word


def _pairs_by_layer(
    probed: ProbedModel, words: Sequence[AmbiguousWord]
) -> tuple[dict[str, PairsByWord], list[str], list[str]]:
    """The pairs by layer and word; the words that are unknown; those that are cut into pieces."""
    everything = vectors(probed.trained, [placed for word in words for placed in word.sentences])
    pairs: dict[str, PairsByWord] = {}
    unknown, cut = [], []
    for word in words:
        senses = [[next(everything) for _ in sense] for sense in word.senses]
        known = [[v for v in sense if v is not None] for sense in senses]
        if sum(map(len, known)) < sum(map(len, senses)):
            unknown.append(word.word)
            continue
        if any(len(v.pieces) > 1 for sense in known for v in sense):
            cut.append(word.word)
        for layer, of in _pairs_of_word(known):
            pairs.setdefault(layer, {})[word.word] = of
    return pairs, unknown, cut


def _require_known_word(prompted: PromptedModel, words: Sequence[AmbiguousWord]) -> None:
    """Makes sure that a model has vectors for a word of the list.

    Raises:
        UserError: it has none, or for none of them.
    """
    known = (all(v is not None for v in vectors(prompted, word.sentences)) for word in words)
    if not any(known):
        raise UserError(
            f"{prompted.name}: its tokenizer knows none of the {len(words)} words of the list; "
            "name another with --set words=FILE.toml"
        )


def _pairs_of_word(
    senses: Sequence[Sequence[WordStates]],
) -> Iterator[tuple[str, list[CosinePair]]]:
    """All pairs of a word's sentences, layer by layer."""
    placed = [(n, v) for n, sense in enumerate(senses) for v in sense]
    layers = [ALONE, *map(str, range(len(placed[0][1].layers)))]
    for number, layer in enumerate(layers):
        found = []
        for (n, one), (m, other) in combinations(placed, 2):
            a, b = ((v.alone, *v.layers)[number] for v in (one, other))
            found.append(CosinePair(_cosine(a, b), n == m))
        yield layer, found


def _cosine(a: Array, b: Array) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    # Rounded, so that equal vectors have 1 and are tied.
    return round(float(a @ b) / norm, 9) if norm else math.nan


def _mean(pairs: Sequence[CosinePair], is_same: bool) -> float:
    return float(np.mean([pair.cosine for pair in pairs if pair.is_same == is_same]))


def _figures(found: PairsByWord) -> dict[str, Any]:
    """Means, the difference with its interval, the AUC."""
    same, other = (
        np.array([_mean(of, is_same) for of in found.values()]) for is_same in (True, False)
    )
    apart = same - other
    draws = np.random.default_rng(SEED).integers(0, len(apart), (DRAWS, len(apart)))
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(apart[draws].mean(1), [tail, 1 - tail])
    every = [pair for of in found.values() for pair in of]
    auc = roc_auc_score([pair.is_same for pair in every], [pair.cosine for pair in every])
    return {
        "same": float(same.mean()),
        "other": float(other.mean()),
        "apart": float(apart.mean()),
        "low": float(low),
        "high": float(high),
        "AUC": float(auc),
        "words": len(apart),
    }


def _notes(
    name: str, words: int, unknown: Sequence[str], cut: Sequence[str], *, has_layers: bool
) -> list[str]:
    remarks = []
    if not has_layers:
        remarks.append(f"{name}: shows no states by layer, only what knows no context")
    if unknown:
        shown = ", ".join(unknown[:MOST_NAMED]) + (", ..." if len(unknown) > MOST_NAMED else "")
        remarks.append(f"{name}: {len(unknown)} of {words} words are unknown: {shown}")
    if cut:
        remarks.append(f"{name}: {len(cut)} of {words - len(unknown)} words are cut into pieces")
    return remarks


def _plot(figure: Any, rows: Sequence[Row]) -> None:
    """Layers against the cosines within and between senses, and against the AUC.

    Each run stands a little aside, for lines that are equal would hide each other.
    """
    figure.set_size_inches(9.6, 5.0)
    left, right = figure.subplots(1, 2)
    ticks = sorted({(_layer_position(row["layer"]), row["layer"]) for row in rows})
    names = list(dict.fromkeys(row["run"] for row in rows))
    shown = names[:MAX_RUNS]
    for number, name in enumerate(shown):
        of = [row for row in rows if row["run"] == name]
        aside, style = (number - (len(shown) - 1) / 2) * RUN_OFFSET, run_style(number)
        if all(row["layer"] in (ALONE, "0") for row in of):  # no layers: a level across all
            x = [place + aside for place, _ in ticks]
            left.plot(x, [of[-1]["same"]] * len(x), ":", label=name, **style)
            right.plot(x, [of[-1]["AUC"]] * len(x), ":", **style)
            continue
        x = [_layer_position(row["layer"]) + aside for row in of]
        left.plot(x, [row["same"] for row in of], "-", label=name, **style)
        left.plot(x, [row["other"] for row in of], "--", markerfacecolor="w", **style)
        right.plot(x, [row["AUC"] for row in of], "-", **style)
    for axes in (left, right):
        axes.set_xticks([place for place, _ in ticks], [label for _, label in ticks])
        axes.set_xlabel("layer")
        axes.grid(alpha=0.3)
    right.axhline(0.5, color="gray", linewidth=0.8, zorder=0)
    said = "One word in two sentences; line: same sense,\ndashed: other, dotted: without layers"
    left.set(ylabel="mean cosine", title=title(said, len(names)))
    right.set(ylabel="AUC", title="How well the cosine tells the sense\ngrey: chance")
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False
    )


def _layer_position(layer: str) -> int:
    return -1 if layer == ALONE else int(layer)
