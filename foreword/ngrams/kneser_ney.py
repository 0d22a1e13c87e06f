"""Interpolated Kneser-Ney: lower orders count the contexts that a word follows, not its uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foreword.ngrams.counting import Level
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.smooth import ContextSpan, SmoothedOrder, smoothed
from foreword.types import Array

# How many n-grams have count 0, 1, 2, 3, 4 -> D of 0, 1, 2, 3+; nan where they do not say.
Discounts = Callable[[Array], Array]


def estimate(
    levels: Sequence[Level],
    is_word: Array,
    scratch: Scratch,
    discounts: Discounts,
    fallback: Array,
) -> list[SmoothedOrder]:
    """The estimates, with the conventions of KenLM.

    The greatest order has its counts; each below has, of an n-gram, the number of words seen before
    it, or its count where nothing can stand before it since it begins a text. `discounts` of these
    are taken off and given to the order below; words share what unigrams give with the uniform
    distribution over all words, seen or not. Where the counts are too few to say the discounts, or
    would take off less than nothing or more than there is, they are `fallback`.

    Reference: Chen & Goodman 1998, section 4.1.6; Heafield et al. 2013, section 3.
    """
    found: list[SmoothedOrder] = []
    below = np.full(len(is_word), 1 / is_word.sum())  # probabilities of the order below
    for n, level in enumerate(levels, start=1):
        adjusted = _Adjusted.of(levels, n, is_word, scratch)
        taken = discounts(adjusted.histogram(scratch))
        note = ""
        if not ((taken >= 0) & (taken <= np.arange(4))).all():
            taken = fallback
            note = f"too few {n}-grams to learn discounts from: {_listed(fallback[1:])} are used"
        probs = scratch.create(f"lower-{n}", len(level), np.float64)
        order = _Order(level, adjusted, taken, below, probs)
        found.append(replace(smoothed(levels, n, len(is_word), scratch, order), note=note))
        below = probs
    return found


@dataclass(frozen=True)
class _Adjusted:
    """Counts of the greatest order, else numbers of words before; of a part, (n-grams,) int64."""

    level: Level
    before: Array
    is_word: Array | None  # where the n-grams are words

    @classmethod
    def of(cls, levels: Sequence[Level], n: int, is_word: Array, scratch: Scratch) -> _Adjusted:
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
        found = np.where(level.is_initial[part], level.counts[part], self.before[part])
        return found if self.is_word is None else np.where(self.is_word[part], found, 0)

    def histogram(self, scratch: Scratch) -> Array:
        """How many n-grams have 0, 1, 2, 3, 4; (5,) int64."""

        def of(part: slice) -> Array:
            return np.bincount(np.minimum(self(part), 5), minlength=6)[:5]

        found = scratch.each(of, scratch.parts(len(self.level)))
        return np.asarray(np.sum([np.zeros(5, np.int64), *found], axis=0))


@dataclass(frozen=True)
class _Order:
    """The probabilities of a stretch's n-grams, which it keeps, and what its contexts leave."""

    level: Level
    adjusted: _Adjusted
    taken: Array
    below: Array
    probs: Array

    def __call__(self, stretch: ContextSpan) -> tuple[Array, Array]:
        counts = self.adjusted(stretch.grams)
        off = self.taken[np.minimum(counts, 3)]
        total = stretch.sums(counts)
        with np.errstate(invalid="ignore", divide="ignore"):
            left = np.where(total > 0, stretch.sums(off) / total, 1.0)
        suffixes, is_word = self.level.suffixes, self.adjusted.is_word
        lower = self.below if is_word is not None else self.below[suffixes[stretch.grams]]
        probs = (counts - off) / total[stretch.context] + left[stretch.context] * lower
        if is_word is not None:
            probs[~is_word] = 0
        self.probs[stretch.grams] = probs
        return probs, left


def _listed(discounts: Array) -> str:
    """Each once: `0.5, 1, 1.5`."""
    return ", ".join(f"{value:g}" for value in np.unique(discounts))
