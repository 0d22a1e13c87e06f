"""Kneser-Ney: one discount for all n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foreword.ngrams import kneser_ney
from foreword.ngrams.counting import Level
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.smoothing._contract import SmoothedOrder, Smoothing
from foreword.settings.ranges import Share
from foreword.types import Array


@dataclass(frozen=True)
class KneserNey(Smoothing):
    """Interpolated Kneser-Ney smoothing with the discount n1 / (n1 + 2 n2) of each order.

    Attributes:
        fallback: the discount of an order without n-grams seen once or without n-grams seen twice.

    Reference: Kneser & Ney 1995; Chen & Goodman 1998, section 4.1.5.
    """

    fallback: Share = 0.75

    def estimate(
        self, levels: Sequence[Level], is_word: Array, scratch: Scratch
    ) -> list[SmoothedOrder]:
        """See `foreword.ngrams.kneser_ney.estimate`."""
        fallback = np.array([0.0, *[self.fallback] * 3])
        return kneser_ney.estimate(levels, is_word, scratch, self._discounts, fallback)

    def _discounts(self, counts: Array) -> Array:
        has_both = counts[1] > 0 and counts[2] > 0
        discount = counts[1] / (counts[1] + 2 * counts[2]) if has_both else np.nan
        return np.array([0.0, discount, discount, discount])
