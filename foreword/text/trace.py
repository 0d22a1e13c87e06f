"""Byte-pair encoding, merge by merge, on a small dictionary: for study, not for speed.

low:5 lower:2 newest:6 widest:3

e s -> es, es t -> est, l o -> lo, lo w -> low, n e -> ne, ne w -> new, new est -> newest, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Pair = tuple[str, str]


@dataclass(frozen=True)
class Merge:
    """One step: the most frequent pair becomes one symbol.

    Attributes:
        pair: the two symbols.
        count: their number of adjacent occurrences in the dictionary.
        vocab: size of the vocabulary after the merge.
        words: the segmented words of the dictionary after the merge.
    """

    pair: Pair
    count: int
    vocab: int
    words: tuple[tuple[str, ...], ...]

    @property
    def symbol(self) -> str:
        """The new symbol."""
        return "".join(self.pair)


def learn(counts: Mapping[str, int], merges: int = 10) -> list[Merge]:
    """Learn up to `merges` merges from words and their counts.

    Sennrich et al. 2016, Algorithm 1, whose example makes ten merges. Among equally frequent pairs
    the first one met wins, with the words read in the given order, left to right. A pair that
    occurs only once is not merged.

    *Differs from the paper:* no symbol marks the end of a word.
    """
    words = [tuple(word) for word in counts]
    vocab = len({symbol for word in words for symbol in word})
    steps: list[Merge] = []
    while len(steps) < merges:
        frequency: dict[Pair, int] = {}
        for word, count in zip(words, counts.values(), strict=True):
            for pair in pairwise(word):
                frequency[pair] = frequency.get(pair, 0) + count
        best = max(frequency, key=frequency.__getitem__, default=None)  # the first of the highest
        if best is None or frequency[best] < 2:
            break
        words = [_merge(word, best) for word in words]
        vocab += 1
        steps.append(Merge(best, frequency[best], vocab, tuple(words)))
    return steps


def segment(word: str, steps: Sequence[Merge]) -> tuple[str, ...]:
    """Segment `word`, seen or not, by the merges in the order they were learned."""
    symbols = tuple(word)
    for step in steps:
        symbols = _merge(symbols, step.pair)
    return symbols


def _merge(symbols: tuple[str, ...], pair: Pair) -> tuple[str, ...]:
    """Return `symbols` with each `pair`, from the left, merged into one symbol."""
    merged: list[str] = []
    i = 0
    while i < len(symbols):
        if symbols[i : i + 2] == pair:
            merged.append("".join(pair))
            i += 2
        else:
            merged.append(symbols[i])
            i += 1
    return tuple(merged)
