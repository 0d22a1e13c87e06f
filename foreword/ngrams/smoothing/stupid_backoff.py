"""Relative frequency where there is one, else a share of the shorter context's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foreword.ngrams.counting import Level
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.smooth import ContextSpan, SmoothedOrder, smoothed
from foreword.ranges import PositiveShare, Ranged
from foreword.types import Array


@dataclass(frozen=True)
class StupidBackoff(Ranged):
    """Scores, not probabilities: they do not add up to 1, so their perplexity says nothing.

    Attributes:
        share: of the shorter context's score.

    Reference: Brants et al. 2007, section 4.
    """

    share: PositiveShare = 0.4

    @property
    def is_normalised(self) -> bool:
        """Always false."""
        return False

    @property
    def unseen(self) -> float:
        """Unseen contexts back off with weight `share`, like seen ones."""
        return self.share

    def estimate(
        self, levels: Sequence[Level], is_word: Array, scratch: Scratch
    ) -> list[SmoothedOrder]:
        """Return relative frequencies; every context has the back-off weight `share`."""

        def probs_of(stretch: ContextSpan, n: int) -> tuple[Array, Array]:
            counts = levels[n - 1].counts[stretch.grams]
            counts = counts if n > 1 else counts * is_word
            total = stretch.sums(counts)
            return counts / total[stretch.context], np.full(len(total), self.share)

        return [
            smoothed(levels, n, len(is_word), scratch, lambda stretch, n=n: probs_of(stretch, n))  # type: ignore[misc]
            for n in range(1, len(levels) + 1)
        ]
