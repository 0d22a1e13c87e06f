"""Linear decay after a warm-up."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.settings.ranges import Ranged, Share
from foreword.train.warmup import Warmup


@dataclass(frozen=True)
class Linear(Ranged):
    """Warm-up, then linear decay to `floor` times the peak (BERT).

    Attributes:
        warmup: its length, in `steps` or as a `share` of the budget.
        floor: the least factor, reached when the budget ends.

    Also called: triangular.
    """

    warmup: Warmup = Warmup()
    floor: Share = 0.0

    def factor(self, progress: float, step: int, total: float) -> float:
        rise, after = self.warmup.factor_and_rest(progress, step, total)
        return rise * (1 - (1 - self.floor) * after)
