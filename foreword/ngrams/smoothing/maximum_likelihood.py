"""Maximum likelihood: relative frequencies, where unseen n-grams have probability 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foreword.ngrams import additive
from foreword.ngrams.counting import Level
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.smoothing._contract import SmoothedOrder
from foreword.types import Array


@dataclass(frozen=True)
class MaximumLikelihood:
    """count / count of the context; an unseen n-gram has probability 0 and infinite perplexity.

    Also called: MLE.
    Reference: Jurafsky & Martin, chapter 3.
    """

    @property
    def is_normalised(self) -> bool:
        """True, although after an unseen context every word has probability 0."""
        return True

    @property
    def unseen(self) -> float:
        """Unseen contexts back off with weight 1."""
        return 1.0

    def estimate(
        self, levels: Sequence[Level], is_word: Array, scratch: Scratch
    ) -> list[SmoothedOrder]:
        """See `foreword.ngrams.additive.estimate`."""
        return additive.estimate(levels, is_word, scratch, 0.0)
