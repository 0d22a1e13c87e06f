"""What a smoothing gives: a probability per n-gram seen, and what is left for those not seen.

    p(word | context) = exp(log_probs[context word])                           where it was seen
                      = exp(log_backoffs[context]) p(word | context less its first word)   else

A context that was never seen itself leaves `unseen`, which is everything but for stupid back-off.
This is the form of ARPA files, and every kind in `ngrams/smoothing/` has it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from foreword.ngrams.counting import CHUNK, Level
from foreword.types import Array


@dataclass(frozen=True)
class Estimate:
    """Of the n-grams of one order.

    Attributes:
        log_probs: nats, (n-grams,) float32.
        log_backoffs: nats, (n-grams,) float32; empty at the greatest order.
        note: what is worth knowing of how it was made, or "".
    """

    log_probs: Array
    log_backoffs: Array
    note: str = ""


class Smoothing(Protocol):
    """A kind in `ngrams/smoothing/`."""

    @property
    @abstractmethod
    def is_normalised(self) -> bool:
        """Whether the probabilities of all words after a context add up to 1."""

    @property
    @abstractmethod
    def unseen(self) -> float:
        """What a context that was never seen leaves to the shorter one; 1 in a distribution."""

    @abstractmethod
    def estimate(self, levels: Sequence[Level], is_word: Array) -> list[Estimate]:
        """Probabilities of all n-grams.

        Args:
            levels: counts, order 1 first.
            is_word: what may be predicted, seen or not; the rest, such as the token that begins a
                text, has probability 0; (vocab,) bool.
        """


def parts(size: int) -> Iterator[slice]:
    """Slices of `size` things, as many at once as memory is meant to bear."""
    for at in range(0, size, CHUNK):
        yield slice(at, min(at + CHUNK, size))


def sums(level: Level, vocab: int, contexts: int, value: Callable[[slice], Array]) -> Array:
    """Sums of a value of n-grams over those with the same context, (contexts,) float64."""
    total = np.zeros(contexts)
    for part in parts(len(level)):
        context = level.keys[part] // vocab
        first = int(context[0])
        found = np.bincount(context - first, weights=value(part))
        total[first : first + len(found)] += found
    return total


def logarithm(values: Array) -> Array:
    """Natural logarithms as float32, -inf of 0."""
    with np.errstate(divide="ignore"):
        return np.log(values).astype(np.float32)
