"""Counts of words or characters as features, weighted, and a linear model of them."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer

from foreword.disk import stored
from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import Count
from foreword.tables.examples import Labelled
from foreword.tuning.bag_of_words import words_of
from foreword.tuning.best.linear import LinearMap, fit_linear
from foreword.tuning.best.material import Material
from foreword.tuning.candidates._contract import Fitted, Learner
from foreword.types import Array

Grams = Literal["words", "characters"]
Weighting = Literal["tf_idf", "log_count_ratios"]
HASHED = 2_048  # columns of hashed counts
MOST = 300_000  # features, the most frequent; character n-grams of much text are millions
FILE, ARRAYS = "counts.json", "counts.safetensors"


def grams_of(counted: Labelled | list[str], grams: Grams, longest: int) -> list[str]:
    """Return what is counted of a text: n-grams up to `longest`, of words or within words.

    Those of a pair tell which of the texts has them, or whether both have. A list of named
    features is returned as it is.
    """
    if isinstance(counted, list):
        return counted
    options: dict[str, Any] = {"analyzer": "char_wb"}
    if grams == "words":
        options = {"tokenizer": words_of, "token_pattern": None}
    of = CountVectorizer(ngram_range=(1, longest), **options).build_analyzer()
    first: list[str] = of(counted.text)
    if counted.pair is None:
        return first
    second = of(counted.pair)
    both = set(first) & set(second)
    return [
        *(f"1 {gram}" for gram in first),
        *(f"2 {gram}" for gram in second),
        *(f"both {gram}" for gram in both),
        *(f"one {gram}" for gram in set(first) ^ set(second)),
    ]


@dataclass(frozen=True)
class Counts:
    """The features of texts: weighted counts.

    Attributes:
        vocabulary: the n-grams that have a column.
        scale: the weight of each column; of log-count ratios one for each class, (classes,
            columns).
    """

    grams: Grams
    longest: int
    weighting: Weighting
    vocabulary: Sequence[str]
    scale: Array

    @classmethod
    def of(
        cls, material: Material, grams: Grams, longest: int, weighting: Weighting
    ) -> tuple[Counts, Any]:
        """Return the counts for examples, and the examples' features, sparse."""
        analyser = partial(grams_of, grams=grams, longest=longest)
        vectorizer = CountVectorizer(analyzer=analyser, max_features=MOST, dtype=np.float32)
        counts = vectorizer.fit_transform(material.counted)
        vocabulary = vectorizer.get_feature_names_out().tolist()
        if weighting == "tf_idf":
            frequency = np.bincount(counts.indices, minlength=counts.shape[1])
            scale = np.log((1 + counts.shape[0]) / (1 + frequency)) + 1
        else:
            scale = np.stack([_log_ratios(counts, is_in) for is_in in _by_label(material)])
        made = cls(grams, longest, weighting, vocabulary, scale.astype(np.float32))
        return made, made._weighted(counts)

    def features(self, counted: Sequence[Labelled | list[str]]) -> Any:
        """Return the features of texts, sparse (texts, columns)."""
        return self._weighted(self._vectorizer.transform(counted))

    @cached_property
    def _vectorizer(self) -> Any:
        analyser = partial(grams_of, grams=self.grams, longest=self.longest)
        columns = {gram: n for n, gram in enumerate(self.vocabulary)}
        return CountVectorizer(analyzer=analyser, vocabulary=columns, dtype=np.float32)

    def _weighted(self, counts: Any) -> Any:
        counts = csr_matrix(counts)
        if self.weighting == "log_count_ratios":
            counts.data[:] = 1
            return counts
        counts.data = 1 + np.log(counts.data)
        counts = csr_matrix(counts.multiply(self.scale))
        norms = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
        return csr_matrix(counts.multiply(1 / np.maximum(norms, 1e-12)[:, None]))

    def hashed(self, counted: Sequence[Labelled | list[str]]) -> Array:
        """Return vectors of texts whose cosines are about those of their weighted counts.

        N-grams that have no column weigh as much as the rarest.

        Returns:
            (texts, `HASHED`) float32.
        """
        scale = dict(zip(self.vocabulary, self.scale.tolist(), strict=True))
        rarest = max(scale.values(), default=1.0)
        vectors = np.zeros((len(counted), HASHED), np.float32)
        for vector, one in zip(vectors, counted, strict=True):
            for gram, count in Counter(grams_of(one, self.grams, self.longest)).items():
                number = zlib.crc32(gram.encode())
                sign = 1 if number >> 31 else -1
                vector[number % HASHED] += sign * (1 + math.log(count)) * scale.get(gram, rarest)
        return vectors


def _by_label(material: Material) -> list[Array]:
    """Return for each label which examples have it, (examples,) bool."""
    targets = material.targets
    if material.form == "sets":
        return list(targets.T > 0)
    return [targets == label for label in range(len(material.labels))]


def _log_ratios(counts: Any, is_in: Array) -> Array:
    """Return the log-count ratio of each feature for a class, (columns,)."""
    has, others = (
        np.asarray((counts > 0)[np.flatnonzero(of)].sum(axis=0)).ravel() + 1.0
        for of in (is_in, ~is_in)
    )
    return np.asarray(np.log((has / has.sum()) / (others / others.sum())))


@dataclass(frozen=True)
class FittedCounts(Fitted):
    """A linear model of weighted counts.

    Attributes:
        linear: the model; None for texts to compare, whose vectors are the hashed counts.
    """

    counts: Counts
    linear: LinearMap | None

    def outputs(self, material: Material) -> Array:
        if self.linear is None:
            return self.counts.hashed(material.counted)
        return self.linear(self.counts.features(material.counted))

    def save(self, folder: Path) -> None:
        folder.mkdir()
        about = {name: getattr(self.counts, name) for name in ("grams", "longest", "weighting")}
        stored.write(folder / FILE, {**about, "vocabulary": list(self.counts.vocabulary)})
        arrays = {"scale": self.counts.scale}
        arrays |= {} if self.linear is None else self.linear._asdict()
        save_file({n: np.ascontiguousarray(a) for n, a in arrays.items()}, folder / ARRAYS)

    @classmethod
    def read(cls, folder: Path) -> FittedCounts:
        about, arrays = stored.read(folder / FILE), load_file(folder / ARRAYS)
        counts = Counts(
            about["grams"], about["longest"], about["weighting"], about["vocabulary"],
            arrays["scale"],
        )  # fmt: skip
        linear = LinearMap(arrays["weights"], arrays["bias"]) if "bias" in arrays else None
        return cls(counts, linear)


@dataclass(frozen=True)
class CountsLearner(Learner):
    """A linear model of weighted counts.

    Attributes:
        inverse_penalties: scikit-learn's C, to choose from.
        longest: the longest n-gram.
    """

    reads_model: ClassVar[bool] = False
    grams: ClassVar[Grams] = "words"
    weighting: ClassVar[Weighting] = "tf_idf"
    inverse_penalties: ClassVar[tuple[float, ...]] = (1.0, 10.0, 100.0)

    longest: Count = 2

    def fit(self, material: Material, seed: int) -> FittedCounts:
        counts, x = Counts.of(material, self.grams, self.longest, self.weighting)
        if material.form == "vectors":
            return FittedCounts(counts, None)
        if self.weighting == "tf_idf":
            return FittedCounts(counts, material.fit_linear(x, self.inverse_penalties))
        # Each class against the others, its features scaled by its own ratios.
        weights, biases = [], []
        for scale, is_in in zip(counts.scale, _by_label(material), strict=True):
            one = fit_linear(x.multiply(scale).tocsr(), is_in, "sets", 1, self.inverse_penalties)
            weights.append(one.weights[:, 0] * scale)
            biases.append(one.bias[0])
        linear = LinearMap(np.stack(weights, axis=1), np.asarray(biases))
        return FittedCounts(counts, linear)

    @classmethod
    def read(cls, folder: Path, trained: TrainedModel) -> FittedCounts:
        return FittedCounts.read(folder)
