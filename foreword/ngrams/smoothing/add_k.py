"""Add-k smoothing: k is added to the count of every n-gram."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foreword.ngrams import additive
from foreword.ngrams.counting import Level
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.smoothing._contract import SmoothedOrder, Smoothing
from foreword.settings.ranges import Positive
from foreword.types import Array


@dataclass(frozen=True)
class AddK(Smoothing):
    """(count + k) / (count of the context + k words).

    Attributes:
        k: the number added to every count; 1 is Laplace's rule.

    Also called: Laplace, additive, add-one, Lidstone.
    Reference: Lidstone 1920; Jurafsky & Martin, chapter 3.
    """

    k: Positive = 1.0

    def estimate(
        self, levels: Sequence[Level], is_word: Array, scratch: Scratch
    ) -> list[SmoothedOrder]:
        """See `foreword.ngrams.additive.estimate`."""
        return additive.estimate(levels, is_word, scratch, self.k)
