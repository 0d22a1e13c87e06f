"""Counts plus a constant: maximum likelihood with 0, Laplace with 1, Lidstone between."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foreword.ngrams.counting import Level
from foreword.ngrams.smooth import Estimate, logarithm, parts, sums
from foreword.types import Array


def estimate(levels: Sequence[Level], is_word: Array, k: float) -> list[Estimate]:
    """(count + k) / (count of the context + k words), over the words.

    A word is predicted from all n - 1 words before it, or from all that there are where a text
    begins; no shorter context is asked. A context never seen gives every word the same.
    """
    vocab, words = len(is_word), int(is_word.sum())
    found: list[Estimate] = []
    for n, level in enumerate(levels, start=1):
        contexts = len(levels[n - 2]) if n > 1 else 1
        total = sums(level, vocab, contexts, lambda part, of=level: of.counts[part])  # type: ignore[misc]
        if n == 1:
            total -= level.counts[~is_word].sum()
        # Shorter contexts count where a text begins: they are all that is known there.
        is_whole = level.is_initial if n < len(levels) else np.ones(len(level), dtype=bool)
        probs = np.full(len(level), 1 / words if k else 0.0)
        for part in parts(len(level)):
            context = level.keys[part] // vocab
            own = (level.counts[part] + k) / (total[context] + k * words)
            probs[part] = np.where(is_whole[part], own, probs[part])
        if n == 1:
            probs[~is_word] = 0
        if n > 1:
            before = levels[n - 2]
            asks = before.is_initial if n < len(levels) else np.ones(len(before), dtype=bool)
            with np.errstate(invalid="ignore", divide="ignore"):
                # Every word not seen after it gets k, where each has 1 / words in the order below.
                left = np.where(total > 0, k * words / (total + k * words), float(k > 0))
            found[-1] = Estimate(found[-1].log_probs, logarithm(np.where(asks, left, 1.0)))
        found.append(Estimate(logarithm(probs), np.empty(0, np.float32)))
    return found
