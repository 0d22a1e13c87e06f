"""Small texts to count, and a reference implementation of Kneser-Ney, word by word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from foreword.types import Array

START, END, VOCAB = 0, 1, 14


def stream(texts: int = 60, seed: int = 1) -> Array:
    """Return concatenated texts of random words with skewed frequencies, each in START and END."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, VOCAB - 1)
    words: list[int] = []
    for length in rng.integers(0, 9, texts):
        drawn = rng.choice(np.arange(2, VOCAB), length, p=weights / weights.sum())
        words += [START, *drawn.tolist(), END]
    return np.array(words)


def documents(words: Array) -> list[Array]:
    """Return each text of a stream without its start token."""
    return [text[1:] for text in np.split(words, np.flatnonzero(words == START))[1:]]


def ngrams(words: Array, n: int) -> Counter[tuple[int, ...]]:
    """Count n-grams within texts."""
    counts: Counter[tuple[int, ...]] = Counter()
    for at in range(len(words) - n + 1):
        gram = tuple(words[at : at + n].tolist())
        if START not in gram[1:]:
            counts[gram] += 1
    return counts


class SlowKneserNey:
    """Modified Kneser-Ney, interpolated, from dictionaries (Chen & Goodman 1998, 4.1.6)."""

    def __init__(self, words: Array, order: int) -> None:
        self.order = order
        counts = {n: ngrams(words, n) for n in range(1, order + 1)}
        self.adjusted: dict[int, dict[tuple[int, ...], int]] = {order: dict(counts[order])}
        for n in range(1, order):
            before = Counter(gram[1:] for gram in counts[n + 1])
            self.adjusted[n] = {
                gram: counts[n][gram] if gram[0] == START else before[gram] for gram in counts[n]
            }
        self.adjusted[1][(START,)] = 0
        self.discounts = {n: self._discounts(n) for n in self.adjusted}

    def _discounts(self, n: int) -> list[float]:
        frequencies = Counter(self.adjusted[n].values())
        if not all(frequencies[c] for c in (1, 2, 3, 4)):
            return [0.0, 0.5, 1.0, 1.5]
        share = frequencies[1] / (frequencies[1] + 2 * frequencies[2])
        return [
            0.0,
            *(c - (c + 1) * share * frequencies[c + 1] / frequencies[c] for c in (1, 2, 3)),
        ]

    def prob(self, context: Sequence[int], word: int) -> float:
        """Return p(word | context), with the context cut to order - 1 words."""
        context = tuple(context)[-(self.order - 1) :] if self.order > 1 else ()
        below = self.prob(context[1:], word) if context else 1 / (VOCAB - 1)
        n = len(context) + 1
        after = {gram: c for gram, c in self.adjusted[n].items() if gram[:-1] == context}
        total = sum(after.values())
        if not total:
            return below
        mass = sum(self.discounts[n][min(c, 3)] for c in after.values())
        count = after.get((*context, word), 0)
        return (count - self.discounts[n][min(count, 3)] + mass * below) / total
