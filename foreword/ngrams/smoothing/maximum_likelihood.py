"""Maximum likelihood: relative frequencies, where unseen n-grams have probability 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foreword.ngrams import additive
from foreword.ngrams.counting import Level
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.smoothing._contract import SmoothedOrder, Smoothing
from foreword.types import Array


@dataclass(frozen=True)
class MaximumLikelihood(Smoothing):
    """count / count of the context; an unseen n-gram has probability 0 and infinite perplexity.

    Also called: MLE.
    Reference: Jurafsky & Martin, chapter 3.
    """

    def estimate(
        self, levels: Sequence[Level], is_word: Array, scratch: Scratch
    ) -> list[SmoothedOrder]:
        """See `foreword.ngrams.additive.estimate`."""
        return additive.estimate(levels, is_word, scratch, 0.0)
