"""Relative frequency where there is one, else a share of the shorter context's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foreword.ngrams.counting import Level
from foreword.ngrams.smooth import Estimate, logarithm, parts, sums
from foreword.types import Array


@dataclass(frozen=True)
class StupidBackoff:
    """Scores, not probabilities: they do not add up to 1, so their perplexity says nothing.

    Attributes:
        share: of the shorter context's score.

    Reference: Brants et al. 2007, section 4.
    """

    share: float = 0.4

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share: must be in (0, 1], got {self.share}")

    @property
    def is_normalised(self) -> bool:
        """False."""
        return False

    @property
    def unseen(self) -> float:
        """`share`, as a seen one."""
        return self.share

    def estimate(self, levels: Sequence[Level], is_word: Array) -> list[Estimate]:
        """Relative frequencies; every context leaves `share`, seen or not."""
        found: list[Estimate] = []
        vocab = len(is_word)
        for n, level in enumerate(levels, start=1):
            contexts = len(levels[n - 2]) if n > 1 else 1
            total = sums(level, vocab, contexts, lambda part, of=level: of.counts[part])  # type: ignore[misc]
            if n == 1:
                total -= level.counts[~is_word].sum()
            probs = np.empty(len(level))
            for part in parts(len(level)):
                probs[part] = level.counts[part] / total[level.keys[part] // vocab]
            if n == 1:
                probs[~is_word] = 0
            left = np.full(len(level) if n < len(levels) else 0, np.log(self.share), np.float32)
            found.append(Estimate(logarithm(probs), left))
        return found
