"""Interpolated Kneser-Ney: lower orders count the contexts that a word follows, not its uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from foreword.ngrams.counting import Level
from foreword.ngrams.smooth import Estimate, logarithm, parts, sums
from foreword.types import Array

# How many n-grams have count 0, 1, 2, 3, 4 -> D of 0, 1, 2, 3+; nan where they do not say.
Discounts = Callable[[Array], Array]


def estimate(
    levels: Sequence[Level], is_word: Array, discounts: Discounts, fallback: Array
) -> list[Estimate]:
    """The estimates, with the conventions of KenLM.

    The greatest order has its counts; each below has, of an n-gram, the number of words seen before
    it, or its count where nothing can stand before it since it begins a text. `discounts` of these
    are taken off and given to the order below; words share what unigrams give with the uniform
    distribution over all words, seen or not. Where the counts are too few to say the discounts, or
    would take off less than nothing or more than there is, they are `fallback`.

    Reference: Chen & Goodman 1998, section 4.1.6; Heafield et al. 2013, section 3.
    """
    found: list[Estimate] = []
    vocab = len(is_word)
    below = np.full(1, 1 / is_word.sum())  # probabilities of the order below
    for n, level in enumerate(levels, start=1):
        adjusted = _adjusted(level, levels[n] if n < len(levels) else None)
        if n == 1:
            adjusted[~is_word] = 0
        taken = discounts(np.bincount(np.minimum(adjusted, 5), minlength=6)[:5])
        note = ""
        if not ((taken >= 0) & (taken <= np.arange(4))).all():
            taken = fallback
            note = f"too few {n}-grams to learn discounts from: {_listed(fallback[1:])} are used"
        probs, backoffs = np.empty(len(level)), np.empty(0)
        contexts = len(levels[n - 2]) if n > 1 else 1

        def off(part: slice, adjusted: Array = adjusted, taken: Array = taken) -> Array:
            return np.asarray(taken[np.minimum(adjusted[part], 3)])

        total = sums(level, vocab, contexts, lambda part, a=adjusted: a[part])  # type: ignore[misc]
        given = sums(level, vocab, contexts, off)
        with np.errstate(invalid="ignore", divide="ignore"):
            backoffs = np.where(total > 0, given / total, 1.0)  # what a context leaves to below
        for part in parts(len(level)):
            context = level.keys[part] // vocab
            lower = below[level.suffixes[part]] if n > 1 else below
            own = (adjusted[part] - off(part)) / total[context]
            probs[part] = own + backoffs[context] * lower
        if n == 1:
            probs[~is_word] = 0
        else:
            found[-1] = replace(found[-1], log_backoffs=logarithm(backoffs))
        found.append(Estimate(logarithm(probs), np.empty(0, np.float32), note))
        below = probs
    return found


def _adjusted(level: Level, above: Level | None) -> Array:
    """Counts of the greatest order, else numbers of words before; (n-grams,) int64."""
    if above is None:
        return np.array(level.counts)
    before = np.zeros(len(level), dtype=np.int64)
    for part in parts(len(above)):
        before += np.bincount(above.suffixes[part], minlength=len(level))
    return np.where(level.is_initial, level.counts, before)


def _listed(discounts: Array) -> str:
    """Each once: `0.5, 1, 1.5`."""
    return ", ".join(f"{value:g}" for value in np.unique(discounts))
