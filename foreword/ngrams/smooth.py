"""What a smoothing gives: a probability per n-gram seen, and what is left for those not seen.

    p(word | context) = exp(log_probs[context word])                           where it was seen
                      = exp(log_backoffs[context]) p(word | context less its first word)   else

A context that was never seen itself leaves `unseen`, which is everything but for stupid back-off.
This is the form of ARPA files, and every kind in `ngrams/smoothing/` has it.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from foreword.ngrams.counting import Level
from foreword.ngrams.scratch import Scratch
from foreword.types import Array


@dataclass(frozen=True)
class SmoothedOrder:
    """Of the n-grams of one order.

    Attributes:
        log_probs: nats, (n-grams,) float32.
        log_backoffs: what their contexts leave, nats; (n-grams of the order below,) float32, of
            order 1 a single one.
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
    def estimate(
        self, levels: Sequence[Level], is_word: Array, scratch: Scratch
    ) -> list[SmoothedOrder]:
        """Probabilities of all n-grams.

        Args:
            levels: counts, order 1 first.
            is_word: what may be predicted, seen or not; the rest, such as the token that begins a
                text, has probability 0; (vocab,) bool.
            scratch: for what does not fit into memory.
        """


@dataclass(frozen=True)
class ContextSpan:
    """Contexts that stand one after the other, and all n-grams that begin with them.

    Attributes:
        contexts: of the order below.
        grams: n-grams.
        context: of each n-gram, counted from the first of the stretch; (n-grams,) int64.
    """

    contexts: slice
    grams: slice
    context: Array

    def sums(self, values: Array) -> Array:
        """Sums of a value of the n-grams over those of a context, (contexts,) float64."""
        contexts = self.contexts.stop - self.contexts.start
        return np.bincount(self.context, weights=values, minlength=contexts)


def smoothed(
    levels: Sequence[Level],
    n: int,
    vocab: int,
    scratch: Scratch,
    probs_of: Callable[[ContextSpan], tuple[Array, Array]],
) -> SmoothedOrder:
    """The estimate of one order, made a stretch at a time.

    Args:
        levels: counts, order 1 first.
        n: the order.
        vocab: number of ids.
        scratch: where the estimate lies.
        probs_of: of a stretch, the probabilities of its n-grams and what its contexts leave.
    """
    level = levels[n - 1]
    contexts = len(levels[n - 2]) if n > 1 else 1
    log_probs = scratch.create(f"log-probs-{n}", len(level), np.float32)
    log_backoffs = scratch.create(f"log-backoffs-{n}", contexts, np.float32)

    def smooth(span: tuple[slice, slice]) -> None:
        of, grams = span
        stretch = ContextSpan(of, grams, level.keys[grams] // vocab - of.start)
        probs, left = probs_of(stretch)
        log_probs[grams], log_backoffs[of] = _logarithm(probs), _logarithm(left)

    scratch.each(smooth, _spans(level, contexts, vocab, scratch))
    return SmoothedOrder(log_probs, log_backoffs)


def _spans(level: Level, contexts: int, vocab: int, scratch: Scratch) -> list[tuple[slice, slice]]:
    """All contexts and their n-grams, as many of both at once as memory is meant to bear."""
    step = scratch.step(max(contexts, len(level)))
    by_grams = level.keys[::step] // vocab
    cuts = np.unique(np.concatenate([np.arange(0, contexts, step), by_grams, [contexts]]))
    ends = np.searchsorted(level.keys, cuts * vocab)
    of, grams = ([slice(*pair) for pair in itertools.pairwise(at.tolist())] for at in (cuts, ends))
    return list(zip(of, grams, strict=True))


def _logarithm(values: Array) -> Array:
    """Natural logarithms as float32, -inf of 0."""
    with np.errstate(divide="ignore"):
        return np.log(values).astype(np.float32)
