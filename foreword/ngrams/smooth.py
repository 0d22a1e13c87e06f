"""Smoothing one order of n-grams, a span of whole contexts at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from foreword.ngrams.counting import Level
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.smoothing._contract import SmoothedOrder
from foreword.types import Array


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
