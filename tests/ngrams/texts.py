"""Small texts to count, and Kneser-Ney computed word by word, plain enough to be believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from foreword.types import Array

START, END, VOCAB = 0, 1, 14


def stream(texts: int = 60, seed: int = 1) -> Array:
    """Texts of skewed random words, one after the other, each between START and END."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, VOCAB - 1)
    words: list[int] = []
    for length in rng.integers(0, 9, texts):
        drawn = rng.choice(np.arange(2, VOCAB), length, p=weights / weights.sum())
        words += [START, *drawn.tolist(), END]
    return np.array(words)


def documents(words: Array) -> list[Array]:
    """Each text of a stream without what begins it."""
    return [text[1:] for text in np.split(words, np.flatnonzero(words == START))[1:]]


def ngrams(words: Array, n: int) -> Counter[tuple[int, ...]]:
    """Counts of n-grams within texts."""
    found: Counter[tuple[int, ...]] = Counter()
    for at in range(len(words) - n + 1):
        gram = tuple(words[at : at + n].tolist())
        if START not in gram[1:]:
            found[gram] += 1
    return found


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
        of = Counter(self.adjusted[n].values())
        if not all(of[c] for c in (1, 2, 3, 4)):
            return [0.0, 0.5, 1.0, 1.5]
        share = of[1] / (of[1] + 2 * of[2])
        return [0.0, *(c - (c + 1) * share * of[c + 1] / of[c] for c in (1, 2, 3))]

    def prob(self, context: Sequence[int], word: int) -> float:
        """p(word | context), the context cut to what the order uses."""
        context = tuple(context)[-(self.order - 1) :] if self.order > 1 else ()
        below = self.prob(context[1:], word) if context else 1 / (VOCAB - 1)
        n = len(context) + 1
        after = {gram: c for gram, c in self.adjusted[n].items() if gram[:-1] == context}
        total = sum(after.values())
        if not total:
            return below
        taken = sum(self.discounts[n][min(c, 3)] for c in after.values())
        own = after.get((*context, word), 0)
        return (own - self.discounts[n][min(own, 3)] + taken * below) / total
