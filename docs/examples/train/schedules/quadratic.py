"""A quadratic decay, as an example of a schedule in a plug-in."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.settings.ranges import Ranged
from foreword.train.warmup import Warmup


@dataclass(frozen=True)
class Quadratic(Ranged):
    """Warm up, then fall as the square of the share of the budget that is left."""

    warmup: Warmup = Warmup()

    def factor(self, progress: float, step: int, total: float) -> float:
        """Return what the peak learning rate is multiplied by."""
        rise, after = self.warmup.factor_and_rest(progress, step, total)
        return rise * (1 - after) ** 2
