"""The contract of smoothings: probabilities of seen n-grams and back-off weights of contexts.

    p(word | context) = exp(log_probs[context word])                           if it was seen
                      = exp(log_backoffs[context]) p(word | context less its first word)   else

An unseen context backs off with weight `unseen`: 1, except in stupid back-off. This is the model of
ARPA files, and of every kind in `ngrams/smoothing/`.
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
    """The smoothed probabilities of one order.

    Attributes:
        log_probs: of each n-gram, in nats; (n-grams,) float32.
        log_backoffs: the back-off weights of their contexts, in nats; (n-grams of the order below,)
            float32, a single one at order 1.
        note: a remark about the smoothing for the user, or "".
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
        """The back-off weight of an unseen context; 1 in a distribution."""

    @abstractmethod
    def estimate(
        self, levels: Sequence[Level], is_word: Array, scratch: Scratch
    ) -> list[SmoothedOrder]:
        """Return the probabilities of all n-grams, order 1 first.

        Args:
            levels: counts, order 1 first.
            is_word: the ids that may be predicted, seen or not; others, such as the token that
                begins a text, have probability 0; (vocab,) bool.
            scratch: holds arrays that may not fit into memory.
        """


@dataclass(frozen=True)
class ContextSpan:
    """A range of contexts, and all n-grams that begin with them.

    Attributes:
        contexts: the range of contexts, which are n-grams of the order below.
        grams: the range of n-grams.
        context: the context of each n-gram, as an index into the range; (n-grams,) int64.
    """

    contexts: slice
    grams: slice
    context: Array

    def sums(self, values: Array) -> Array:
        """Return the sum of the n-grams' values over each context, (contexts,) float64."""
        contexts = self.contexts.stop - self.contexts.start
        return np.bincount(self.context, weights=values, minlength=contexts)


def smooth_order(
    levels: Sequence[Level],
    n: int,
    vocab: int,
    scratch: Scratch,
    probs_of: Callable[[ContextSpan], tuple[Array, Array]],
) -> SmoothedOrder:
    """Return the smoothed probabilities of one order, computed span by span.

    Args:
        levels: counts, order 1 first.
        n: the order.
        vocab: number of ids.
        scratch: holds the probabilities.
        probs_of: returns the probabilities of a span's n-grams and the back-off weights of its
            contexts.
    """
    level = levels[n - 1]
    contexts = len(levels[n - 2]) if n > 1 else 1
    log_probs = scratch.create(f"log-probs-{n}", len(level), np.float32)
    log_backoffs = scratch.create(f"log-backoffs-{n}", contexts, np.float32)

    def smooth(ranges: tuple[slice, slice]) -> None:
        context_range, grams = ranges
        context = level.keys[grams] // vocab - context_range.start
        probs, backoffs = probs_of(ContextSpan(context_range, grams, context))
        log_probs[grams], log_backoffs[context_range] = _logarithm(probs), _logarithm(backoffs)

    scratch.map(smooth, _spans(level, contexts, vocab, scratch))
    return SmoothedOrder(log_probs, log_backoffs)


def _spans(level: Level, contexts: int, vocab: int, scratch: Scratch) -> list[tuple[slice, slice]]:
    """Return ranges of contexts and of their n-grams; each holds about `part_size` of both."""
    step = scratch.part_size(max(contexts, len(level)))
    by_grams = level.keys[::step] // vocab
    cuts = np.unique(np.concatenate([np.arange(0, contexts, step), by_grams, [contexts]]))
    ends = np.searchsorted(level.keys, cuts * vocab)
    context_ranges, gram_ranges = (
        [slice(*pair) for pair in itertools.pairwise(edges.tolist())] for edges in (cuts, ends)
    )
    return list(zip(context_ranges, gram_ranges, strict=True))


def _logarithm(values: Array) -> Array:
    """Return natural logarithms, -inf for 0, as float32."""
    with np.errstate(divide="ignore"):
        return np.log(values).astype(np.float32)
