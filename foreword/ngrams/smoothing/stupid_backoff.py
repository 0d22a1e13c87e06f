"""Stupid back-off: the relative frequency of seen n-grams, else a share of the shorter one's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foreword.ngrams.counting import Level
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.smooth import ContextSpan, smooth_order
from foreword.ngrams.smoothing._contract import SmoothedOrder, Smoothing
from foreword.settings.ranges import PositiveShare
from foreword.types import Array


@dataclass(frozen=True)
class StupidBackoff(Smoothing):
    """Scores, not probabilities: they do not sum to 1, so their perplexity has no meaning.

    Attributes:
        share: the factor of the shorter context's score.

    Also called: stupid back-off.
    Reference: Brants et al. 2007, section 4.
    """

    is_normalised: ClassVar[bool] = False

    share: PositiveShare = 0.4

    @property
    def unseen(self) -> float:
        """Unseen contexts back off with weight `share`, like seen ones."""
        return self.share

    def estimate(
        self, levels: Sequence[Level], is_word: Array, scratch: Scratch
    ) -> list[SmoothedOrder]:
        """Return relative frequencies; every context has the back-off weight `share`."""

        def scores_of(span: ContextSpan, n: int) -> tuple[Array, Array]:
            counts = levels[n - 1].counts[span.grams]
            counts = counts if n > 1 else counts * is_word
            total = span.sums(counts)
            return counts / total[span.context], np.full(len(total), self.share)

        return [
            smooth_order(levels, n, len(is_word), scratch, lambda span, n=n: scores_of(span, n))  # type: ignore[misc]
            for n in range(1, len(levels) + 1)
        ]
