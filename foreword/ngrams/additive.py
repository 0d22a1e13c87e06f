"""Counts plus a constant: maximum likelihood with 0, Laplace with 1, Lidstone between."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foreword.ngrams.counting import Level
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.smooth import ContextSpan, SmoothedOrder, smoothed
from foreword.types import Array


def estimate(
    levels: Sequence[Level], is_word: Array, scratch: Scratch, k: float
) -> list[SmoothedOrder]:
    """(count + k) / (count of the context + k words), over the words.

    A word is predicted from all n - 1 words before it, or from all that there are where a text
    begins; no shorter context is asked. A context never seen gives every word the same.
    """
    vocab, words = len(is_word), int(is_word.sum())

    def probs_of(stretch: ContextSpan, n: int) -> tuple[Array, Array]:
        level, below = levels[n - 1], levels[max(n, 2) - 2]
        counts = level.counts[stretch.grams]
        total = stretch.sums(counts if n > 1 else counts * is_word)
        probs = (counts + k) / (total[stretch.context] + k * words)
        with np.errstate(invalid="ignore", divide="ignore"):
            # Every word not seen after it gets k, where each has 1 / words in the order below.
            left = np.where(total > 0, k * words / (total + k * words), float(k > 0))
        if n < len(levels):
            # Shorter contexts count where a text begins: they are all that is known there.
            probs = np.where(level.is_initial[stretch.grams], probs, 1 / words if k else 0.0)
            left = np.where(below.is_initial[stretch.contexts], left, 1.0)
        if n == 1:
            probs[~is_word] = 0
        return probs, left

    return [
        smoothed(levels, n, vocab, scratch, lambda stretch, n=n: probs_of(stretch, n))  # type: ignore[misc]
        for n in range(1, len(levels) + 1)
    ]
