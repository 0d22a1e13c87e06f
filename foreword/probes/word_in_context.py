"""Whether a word's vector differs between contexts: "I record the record"."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.metrics import roc_auc_score

from foreword.errors import UserError
from foreword.evaluation.states import WordStates, vectors
from foreword.evaluation.statistics import LEVEL, bootstrap
from foreword.probes._contract import Finding, ProbedModel, Row
from foreword.probes._layers import ALONE, layer_position
from foreword.probes._marks import MAX_RUNS, run_style, title
from foreword.probes._words import AmbiguousWord, read_words
from foreword.runs.trained_model import TrainedModel
from foreword.types import Array

MOST_NAMED = 8  # unknown words listed by name
DRAWS = 10_000
RUN_OFFSET = 0.08  # horizontal distance between runs in the plot, in layers


class CosinePair(NamedTuple):
    """The cosine of a word's vectors in two sentences, and whether both have the same sense."""

    cosine: float
    is_same: bool


@dataclass(frozen=True)
class WordInContext:
    """The cosine of a word's vectors in two sentences, of one sense and of two, layer by layer.

    Without context the cosine is 1. With context it is smaller, and if the vectors tell senses
    apart, it is smaller between two senses than within one. There are three figures for each layer:
    the mean cosine within a sense and between senses; their difference, averaged over words, with a
    bootstrap interval over words; and how well the cosine separates the two kinds of pairs, the
    area under the ROC curve (AUC; 0.5 is chance, 1 is perfect), over all pairs of all words.

    Layer `alone` is the embedding of the word's tokens; word2vec has no other. Layer 0 is the input
    of the first layer: the embedding plus its position, in models that add it there. Layer n is the
    output of the n-th layer. In an encoder-decoder they are the encoder's. A causal model sees of
    each sentence only the words before the word.

    The vector of a word cut into pieces is the mean over the pieces. Words with an unknown piece
    are left out and listed.

    Attributes:
        words: `english`, `korean`, or a TOML file of the same form as these.

    Reference: Peters et al. 2018, section 5.3; Ethayarajh 2019; Pilehvar & Camacho-Collados 2019.
    Differs from the papers: the sentences are few and written for Foreword; they show the effect
    but cannot rank models. In the English ones the preceding word is always the same, so that a
    network with random weights is near chance; compare it with the trained one.
    """

    reads_text: ClassVar[bool] = False

    words: str = "english"

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """Measure the cosines in each layer of each model.

        Raises:
            UserError: the list cannot be read, or a model has no vectors or knows none of its
                words; all models are checked before the first is measured.
        """
        words = read_words(self.words)
        for probed in models:
            _require_known_word(probed.trained, words)
        rows: list[Row] = []
        details: list[Row] = []
        notes: list[str] = []
        for probed in models:
            pairs, unknown, cut = _pairs_by_layer(probed, words)
            for layer, by_word in pairs.items():
                labels = {"run": probed.label, "layer": layer}
                rows.append({**labels, **_figures(by_word)})
                details += [
                    {**labels, "word": word, "same": _mean(p, True), "other": _mean(p, False)}
                    for word, p in by_word.items()
                ]
            has_layers = len(pairs) > 1
            notes += _notes(probed.label, len(words), unknown, cut, has_layers=has_layers)
        interval = f"{LEVEL:.0%} of {DRAWS:,} bootstrap draws over words"
        notes.append(
            "mean cosines within a sense (same) and between senses (other), and their difference "
            f"(apart); interval: {interval}"
        )
        title = f"the cosine of a word's vectors in two sentences ({self.words})"
        return Finding(
            title,
            rows,
            details,
            notes,
            plot=lambda figure: _plot(figure, rows),
            measure="AUC",
            scores={row["run"]: row["AUC"] for row in rows},  # of the last layer
        )


PairsByWord = dict[str, list[CosinePair]]


def _pairs_by_layer(
    probed: ProbedModel, words: Sequence[AmbiguousWord]
) -> tuple[dict[str, PairsByWord], list[str], list[str]]:
    """Return the pairs by layer and word, the unknown words, and the words cut into pieces."""
    states = vectors(probed.trained, [text for word in words for text in word.sentences])
    pairs: dict[str, PairsByWord] = {}
    unknown, cut = [], []
    for word in words:
        senses = [[next(states) for _ in sense] for sense in word.senses]
        known = [[v for v in sense if v is not None] for sense in senses]
        if sum(map(len, known)) < sum(map(len, senses)):
            unknown.append(word.word)
            continue
        if any(len(v.pieces) > 1 for sense in known for v in sense):
            cut.append(word.word)
        for layer, of_word in _pairs_of_word(known):
            pairs.setdefault(layer, {})[word.word] = of_word
    return pairs, unknown, cut


def _require_known_word(prompted: TrainedModel, words: Sequence[AmbiguousWord]) -> None:
    """Check that a model has vectors for at least one word of the list."""
    is_known = (all(v is not None for v in vectors(prompted, word.sentences)) for word in words)
    if not any(is_known):
        raise UserError(
            f"{prompted.name}: its tokenizer knows none of the {len(words)} words of the list; "
            "name another with --set words=FILE.toml"
        )


def _pairs_of_word(
    senses: Sequence[Sequence[WordStates]],
) -> Iterator[tuple[str, list[CosinePair]]]:
    """Yield all pairs of a word's sentences, layer by layer."""
    occurrences = [(n, v) for n, sense in enumerate(senses) for v in sense]
    layers = [ALONE, *map(str, range(len(occurrences[0][1].layers)))]
    for number, layer in enumerate(layers):
        pairs = []
        for (n, one), (m, other) in combinations(occurrences, 2):
            a, b = ((v.alone, *v.layers)[number] for v in (one, other))
            pairs.append(CosinePair(_cosine(a, b), n == m))
        yield layer, pairs


def _cosine(a: Array, b: Array) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    # Rounded, so that equal vectors have exactly 1 and are ties.
    return round(float(a @ b) / norm, 9) if norm else math.nan


def _mean(pairs: Sequence[CosinePair], is_same: bool) -> float:
    return float(np.mean([pair.cosine for pair in pairs if pair.is_same == is_same]))


def _figures(pairs: PairsByWord) -> dict[str, Any]:
    """Return the mean cosines, their difference with its interval, and the AUC."""
    same, other = (
        np.array([_mean(of_word, is_same) for of_word in pairs.values()])
        for is_same in (True, False)
    )
    # The difference of means over words, with a bootstrap interval.
    apart = same - other
    low, high = bootstrap(lambda drawn: float(apart[drawn].mean()), len(apart), DRAWS)
    # The AUC over all pairs.
    all_pairs = [pair for of_word in pairs.values() for pair in of_word]
    auc = roc_auc_score([pair.is_same for pair in all_pairs], [pair.cosine for pair in all_pairs])
    return {
        "same": float(same.mean()),
        "other": float(other.mean()),
        "apart": float(apart.mean()),
        "low": low,
        "high": high,
        "AUC": float(auc),
        "words": len(apart),
    }


def _notes(
    name: str, words: int, unknown: Sequence[str], cut: Sequence[str], *, has_layers: bool
) -> list[str]:
    notes = []
    if not has_layers:
        notes.append(f"{name}: has no states by layer, only embeddings without context")
    if unknown:
        listed = ", ".join(unknown[:MOST_NAMED]) + (", ..." if len(unknown) > MOST_NAMED else "")
        notes.append(f"{name}: {len(unknown)} of {words} words are unknown: {listed}")
    if cut:
        notes.append(f"{name}: {len(cut)} of {words - len(unknown)} words are cut into pieces")
    return notes


def _plot(figure: Any, rows: Sequence[Row]) -> None:
    """Plot the cosines within and between senses, and the AUC, against the layers.

    Runs are offset horizontally, since equal lines would hide each other.
    """
    figure.set_size_inches(9.6, 5.0)
    left, right = figure.subplots(1, 2)
    ticks = sorted({(layer_position(row["layer"]), row["layer"]) for row in rows})
    names = list(dict.fromkeys(row["run"] for row in rows))
    runs = names[:MAX_RUNS]
    for number, name in enumerate(runs):
        of_run = [row for row in rows if row["run"] == name]
        offset, style = (number - (len(runs) - 1) / 2) * RUN_OFFSET, run_style(number)
        if all(row["layer"] in (ALONE, "0") for row in of_run):  # no layers: a level across all
            x = [tick + offset for tick, _ in ticks]
            left.plot(x, [of_run[-1]["same"]] * len(x), ":", label=name, **style)
            right.plot(x, [of_run[-1]["AUC"]] * len(x), ":", **style)
            continue
        x = [layer_position(row["layer"]) + offset for row in of_run]
        left.plot(x, [row["same"] for row in of_run], "-", label=name, **style)
        left.plot(x, [row["other"] for row in of_run], "--", markerfacecolor="w", **style)
        right.plot(x, [row["AUC"] for row in of_run], "-", **style)
    for axes in (left, right):
        axes.set_xticks([tick for tick, _ in ticks], [label for _, label in ticks])
        axes.set_xlabel("layer")
        axes.grid(alpha=0.3)
    right.axhline(0.5, color="gray", linewidth=0.8, zorder=0)
    text = "One word in two sentences; line: same sense,\ndashed: other, dotted: without layers"
    left.set(ylabel="mean cosine", title=title(text, len(names)))
    right.set(ylabel="AUC", title="How well the cosine separates the senses\ngrey: chance")
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False
    )
