"""Interpolated Kneser-Ney: lower orders count the contexts that a word follows, not its uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foreword.ngrams.counting import Level
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.smooth import ContextSpan, smooth_order
from foreword.ngrams.smoothing._contract import SmoothedOrder
from foreword.types import Array

# The numbers of n-grams with count 0 to 4 -> the discounts of counts 0, 1, 2, 3+; nan where they
# cannot be estimated.
Discounts = Callable[[Array], Array]


def estimate(
    levels: Sequence[Level],
    is_word: Array,
    scratch: Scratch,
    discounts: Discounts,
    fallback: Array,
) -> list[SmoothedOrder]:
    """Return the estimates of every order, with the conventions of KenLM.

    The greatest order uses its counts. Each lower order uses adjusted counts: the number of
    different words seen before an n-gram, or its count if it begins a text. `discounts` are
    subtracted from these, and their mass goes to the order below; unigrams are interpolated with
    the uniform distribution over all words, seen or not. Discounts that cannot be estimated, or
    that are negative or greater than their count, are replaced by `fallback`.

    Reference: Chen & Goodman 1998, section 4.1.6; Heafield et al. 2013, section 3.
    """
    orders: list[SmoothedOrder] = []
    below = np.full(len(is_word), 1 / is_word.sum())  # probabilities of the order below
    for n, level in enumerate(levels, start=1):
        adjusted = _AdjustedCounts.of(levels, n, is_word, scratch)
        by_count = discounts(adjusted.histogram(scratch))
        note = ""
        if not ((by_count >= 0) & (by_count <= np.arange(4))).all():
            by_count = fallback
            listed = _listed(fallback[1:])
            note = f"too few {n}-grams to estimate discounts from: {listed} are used"
        probs = scratch.create(f"lower-{n}", len(level), np.float64)
        probs_of = _Interpolation(level, adjusted, by_count, below, probs)
        orders.append(replace(smooth_order(levels, n, len(is_word), scratch, probs_of), note=note))
        below = probs
    return orders


@dataclass(frozen=True)
class _AdjustedCounts:
    """Counts at the greatest order, else numbers of different preceding words.

    Called with a part of the n-grams, it returns their adjusted counts, (n-grams,) int64.
    """

    level: Level
    continuation_counts: Array
    is_word: Array | None  # at order 1: ids that are not words count 0

    @classmethod
    def of(
        cls, levels: Sequence[Level], n: int, is_word: Array, scratch: Scratch
    ) -> _AdjustedCounts:
        level = levels[n - 1]
        before = level.counts
        if n < len(levels):
            before = scratch.create(f"before-{n}", len(level), np.int64)
            suffixes = levels[n].suffixes
            for part in scratch.parts(len(suffixes)):
                np.add.at(before, suffixes[part], 1)
        return cls(level, before, is_word if n == 1 else None)

    def __call__(self, part: slice) -> Array:
        level = self.level
        counts = np.where(
            level.is_initial[part], level.counts[part], self.continuation_counts[part]
        )
        return counts if self.is_word is None else np.where(self.is_word[part], counts, 0)

    def histogram(self, scratch: Scratch) -> Array:
        """Return how many n-grams have the counts 0, 1, 2, 3, 4; (5,) int64."""

        def histogram_of(part: slice) -> Array:
            return np.bincount(np.minimum(self(part), 5), minlength=6)[:5]

        parts = scratch.map(histogram_of, scratch.parts(len(self.level)))
        return np.asarray(np.sum([np.zeros(5, np.int64), *parts], axis=0))


@dataclass(frozen=True)
class _Interpolation:
    """The interpolated probabilities of one order, computed for a span of contexts per call.

    Attributes:
        level: the counts of the order.
        adjusted: its adjusted counts.
        discounts: discounts of adjusted counts 0, 1, 2, 3+; (4,).
        below: probabilities of the order below; at order 1 the uniform probability of each word.
        probs: receives the probabilities of the order, (n-grams,) float64.
    """

    level: Level
    adjusted: _AdjustedCounts
    discounts: Array
    below: Array
    probs: Array

    def __call__(self, span: ContextSpan) -> tuple[Array, Array]:
        counts = self.adjusted(span.grams)
        discounts = self.discounts[np.minimum(counts, 3)]
        total = span.sums(counts)
        with np.errstate(invalid="ignore", divide="ignore"):
            backoffs = np.where(total > 0, span.sums(discounts) / total, 1.0)
        suffixes, is_word = self.level.suffixes, self.adjusted.is_word
        lower = self.below if is_word is not None else self.below[suffixes[span.grams]]
        probs = (counts - discounts) / total[span.context] + backoffs[span.context] * lower
        if is_word is not None:
            probs[~is_word] = 0
        self.probs[span.grams] = probs
        return probs, backoffs


def _listed(discounts: Array) -> str:
    """Return each different discount once: `0.5, 1, 1.5`."""
    return ", ".join(f"{value:g}" for value in np.unique(discounts))
