"""Counts plus a constant: maximum likelihood with 0, Laplace with 1, Lidstone between."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foreword.ngrams.counting import Level
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.smooth import ContextSpan, smooth_order
from foreword.ngrams.smoothing._contract import SmoothedOrder
from foreword.types import Array


def estimate(
    levels: Sequence[Level], is_word: Array, scratch: Scratch, k: float
) -> list[SmoothedOrder]:
    """Return the estimates (count + k) / (count of the context + k words) of every order.

    A word is predicted from all n - 1 words before it, or from all there are at the beginning of a
    text, never from a shorter context. After an unseen context all words are equally likely.
    """
    vocab, words = len(is_word), int(is_word.sum())

    def probs_of(span: ContextSpan, n: int) -> tuple[Array, Array]:
        level, below = levels[n - 1], levels[max(n, 2) - 2]
        counts = level.counts[span.grams]
        total = span.sums(counts if n > 1 else counts * is_word)
        probs = (counts + k) / (total[span.context] + k * words)
        with np.errstate(invalid="ignore", divide="ignore"):
            # A word unseen after the context gets k, and the order below gives each word 1 / words.
            backoffs = np.where(total > 0, k * words / (total + k * words), float(k > 0))
        if n < len(levels):
            # Orders below the greatest are used only at the beginning of a text.
            probs = np.where(level.is_initial[span.grams], probs, 1 / words if k else 0.0)
            backoffs = np.where(below.is_initial[span.contexts], backoffs, 1.0)
        if n == 1:
            probs[~is_word] = 0
        return probs, backoffs

    return [
        smooth_order(levels, n, vocab, scratch, lambda span, n=n: probs_of(span, n))  # type: ignore[misc]
        for n in range(1, len(levels) + 1)
    ]
