"""Cosine decay after a warm-up."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foreword.settings.ranges import Ranged, Share
from foreword.train.warmup import Warmup


@dataclass(frozen=True)
class Cosine(Ranged):
    """Warm-up, then cosine decay to `floor` times the peak (GPT-3: 0.1).

    Attributes:
        warmup: its length, in `steps` or as a `share` of the budget.
        floor: the least factor, reached when the budget ends.

    Also called: cosine annealing.
    """

    warmup: Warmup = Warmup()
    floor: Share = 0.1

    def factor(self, progress: float, step: int, total: float) -> float:
        rise, after = self.warmup.factor_and_rest(progress, step, total)
        return rise * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * after)))
