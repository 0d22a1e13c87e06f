"""Modified Kneser-Ney: one discount for n-grams seen once, one for twice, one for more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Interval

from foreword.ngrams import kneser_ney
from foreword.ngrams.counting import Level
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.smoothing._contract import SmoothedOrder, Smoothing
from foreword.settings.ranges import Share
from foreword.types import Array


@dataclass(frozen=True)
class ModifiedKneserNey(Smoothing):
    """Interpolated Kneser-Ney smoothing with three discounts for each order, as in KenLM.

    Attributes:
        fallback: the discounts of counts 1, 2, and 3 or more if no n-gram occurs that often, so
            that they cannot be estimated from the text.

    Reference: Chen & Goodman 1998, section 4.1.6.
    """

    fallback: tuple[
        Share, Annotated[float, Interval(ge=0, le=2)], Annotated[float, Interval(ge=0, le=3)]
    ] = (0.5, 1.0, 1.5)

    def estimate(
        self, levels: Sequence[Level], is_word: Array, scratch: Scratch
    ) -> list[SmoothedOrder]:
        """See `foreword.ngrams.kneser_ney.estimate`."""
        fallback = np.array([0.0, *self.fallback])
        return kneser_ney.estimate(levels, is_word, scratch, self._discounts, fallback)

    def _discounts(self, counts: Array) -> Array:
        """Return the discounts of counts 0, 1, 2, 3+ (equation 26 of Chen & Goodman 1998).

        Args:
            counts: how many n-grams have count 0 to 4, (5,) int64.
        """
        if not counts[1:].all():
            return np.full(4, np.nan)
        share = counts[1] / (counts[1] + 2 * counts[2])
        return np.array(
            [0.0, *(n - (n + 1) * share * counts[n + 1] / counts[n] for n in (1, 2, 3))]
        )
