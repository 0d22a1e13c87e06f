"""Inverse square-root decay after a warm-up."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foreword.train.warmup import Warmup


@dataclass(frozen=True)
class InverseSqrt:
    """Warm-up, then peak * sqrt(warm-up steps / step) (Vaswani et al. 2017; T5).

    Attributes:
        warmup: its length, in `steps` or as a `share` of the budget.

    Also called: Noam, rsqrt, inverse square root.
    """

    warmup: Warmup = Warmup()

    def factor(self, progress: float, step: int, total: float) -> float:
        rise, _ = self.warmup.factor_and_rest(progress, step, total)
        first = self.warmup.steps or max(1.0, self.warmup.share * total)
        return rise * math.sqrt(first / max(step + 1, first))
