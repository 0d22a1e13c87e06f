"""Whether sentences that people find similar have similar vectors, without training on labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from foreword.errors import UserError, nearest
from foreword.evaluation.states import TextStates, text_states
from foreword.evaluation.statistics import DRAWS, LEVEL, Ends, bootstrap, rank_correlation
from foreword.probes._contract import FilePath, Finding, ProbedModel, Row
from foreword.probes._files import evenly
from foreword.probes._layers import by_layer, layer_order, require_layer
from foreword.probes._marks import MAX_RUNS, run_style, title
from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import CountOrZero, Ranged
from foreword.tables.columns import Columns, example_of
from foreword.tables.read import read_table
from foreword.text import words
from foreword.types import Array


class RatedSentences(NamedTuple):
    """Two sentences, and how similar people find them."""

    texts: tuple[str, str]
    rating: float


@dataclass(frozen=True)
class SentenceSimilarity(Ranged):
    """The rank correlation of cosines between sentences with people's ratings.

    The vector of a sentence is the mean of the states of its tokens in one layer, without the
    special tokens around it. Nothing is trained on the ratings. Beside it stands a baseline
    without a model: the overlap of the two sets of words (Jaccard).

    Layer `alone` is the embedding of the tokens; word2vec has no other. Layer 0 is the input of the
    first layer, layer n the output of the n-th. The plot has all of them.

    Attributes:
        file: pairs with a rating: a table such as STS-B's `dev.tsv`.
        text: the column of the first sentence.
        pair: the column of the second.
        label: the column of the rating.
        layer: the layer of the states; default: the last.
        limit: number of pairs, evenly spaced; 0 for all.

    Also called: STS, STS-B.
    Reference: Cer et al. 2017; Reimers & Gurevych 2019, section 4.1.
    """

    reads_text: ClassVar[bool] = False

    file: FilePath
    text: str = "sentence1"
    pair: str = "sentence2"
    label: str = "score"
    layer: CountOrZero | None = None
    limit: CountOrZero = 1000

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """Measure the correlation in each layer of each model.

        Raises:
            UserError: the file cannot be read, or a model has no states or no such layer.
        """
        pairs = evenly(self.read(), self.limit)
        ratings = np.array([pair.rating for pair in pairs])
        for probed in models:
            require_layer(probed.trained, pairs[0].texts[0], self.layer)
        rows: list[Row] = []
        details: list[Row] = []
        baseline = rank_correlation(ratings, np.array([_overlap(*pair.texts) for pair in pairs]))
        for probed in models:
            cosines = _cosines_by_layer(probed.trained, pairs)
            correlations = {layer: rank_correlation(ratings, c) for layer, c in cosines.items()}
            details += [
                {"run": probed.label, "layer": layer, "spearman": correlation}
                for layer, correlation in correlations.items()
            ]
            layer = list(cosines)[-1] if self.layer is None else str(self.layer)
            low, high = _interval(ratings, cosines[layer])
            numbers = {"spearman": correlations[layer], "low": low, "high": high}
            also = {"baseline": baseline, "pairs": len(pairs)}
            rows.append({"run": probed.label, "layer": layer, **numbers, **also})
        notes = [
            "baseline: words in both sentences, as a share of the words in either",
            f"interval: {LEVEL:.0%} of {DRAWS:,} bootstrap draws over pairs",
        ]
        return Finding(
            title="sentence similarity: rank correlation of cosines with people's ratings",
            rows=rows,
            details=details,
            notes=notes,
            plot=lambda figure: _plot(figure, rows, details),
            measure="spearman",
            scores={row["run"]: row["spearman"] for row in rows},
        )

    def read(self) -> list[RatedSentences]:
        """Return the pairs of the file.

        Raises:
            UserError: it cannot be read, or a rating is not a number.
        """
        table = read_table(Path(self.file).expanduser())
        for setting in ("text", "pair", "label"):
            name = getattr(self, setting)
            if name not in table.columns:
                hint = nearest(name, table.columns)
                raise UserError(f"probe.{setting}: {table.path} has no column '{name}'{hint}")
        pairs = []
        for line, row in table.sound_rows():
            source = table.source_of(line)
            example = example_of(row, Columns(self.text, self.label, self.pair), source)
            if example is None or not example.label or example.pair is None:
                raise UserError(f"{source}: a sentence or the rating is missing")
            try:
                rating = float(example.label)
            except ValueError:
                rating = math.nan
            if not math.isfinite(rating):
                raise UserError(
                    f"{source}: expected a number in {self.label}, got {example.label!r}"
                )
            pairs.append(RatedSentences((example.text, example.pair), rating))
        if len({pair.rating for pair in pairs}) < 2 or len(pairs) < 3:
            raise UserError(f"{table.path}: needs three pairs with two different ratings")
        return pairs


def _cosines_by_layer(prompted: TrainedModel, pairs: Sequence[RatedSentences]) -> dict[str, Array]:
    """Return the cosine of each pair by layer, (pairs,) float64 each."""
    states = text_states(prompted, (text for pair in pairs for text in pair.texts), splits=True)
    cosines: dict[str, list[float]] = {}
    for _ in pairs:
        one, other = _means(next(states)), _means(next(states))
        for layer in one:
            cosines.setdefault(layer, []).append(_cosine(one[layer], other[layer]))
    return {layer: np.array(values) for layer, values in cosines.items()}


def _means(states: TextStates) -> dict[str, Array]:
    """Return the mean over tokens by layer, (width,) float64 each."""
    return {layer: of.mean(0, dtype=np.float64) for layer, of in by_layer(states).items()}


def _cosine(a: Array, b: Array) -> float:
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    # Rounded, so that equal sentences have exactly 1 and are ties.
    return round(float(a @ b) / norm, 6) if norm else 0.0


def _overlap(one: str, other: str) -> float:
    """Return the share of the words of two sentences that are in both."""
    a, b = (set(words.split(text)) for text in (one, other))
    return len(a & b) / max(1, len(a | b))


def _interval(ratings: Array, cosines: Array) -> Ends:
    """Return the bootstrap interval of the correlation over pairs."""

    def correlation(indices: Array) -> float:
        rho = rank_correlation(ratings[indices], cosines[indices])
        return math.nan if rho is None else rho

    return bootstrap(correlation, len(ratings))


def _plot(figure: Any, rows: Sequence[Row], details: Sequence[Row]) -> None:
    """Plot the correlation in each layer, the runs as lines, and the baseline."""
    figure.set_size_inches(7.6, 4.8)
    axes = figure.subplots()
    ticks = layer_order(str(row["layer"]) for row in details)
    for number, row in enumerate(rows[:MAX_RUNS]):
        of_run = [d for d in details if d["run"] == row["run"] and d["spearman"] is not None]
        value = "–" if row["spearman"] is None else f"{row['spearman']:.3f}"
        axes.plot(
            [ticks.index(str(d["layer"])) for d in of_run],
            [d["spearman"] for d in of_run],
            label=f"{row['run']}: {value} (layer {row['layer']})",
            **run_style(number),
        )
    if rows[0]["baseline"] is not None:
        axes.axhline(rows[0]["baseline"], color="gray", linestyle="--", linewidth=1)
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set_xlabel("layer; dashed: overlap of words")
    axes.set_ylabel("Spearman's rank correlation")
    axes.set_title(title("Sentence similarity: do cosines agree with people?", len(rows)))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
