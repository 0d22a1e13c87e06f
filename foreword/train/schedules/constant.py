"""Constant learning rate after a warm-up."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.train.warmup import Warmup


@dataclass(frozen=True)
class Constant:
    """Warm-up, then the peak rate to the end.

    Attributes:
        warmup: its length, in `steps` or as a `share` of the budget.
    """

    warmup: Warmup = Warmup()

    def factor(self, progress: float, step: int, total: float) -> float:
        return self.warmup.factor_and_rest(progress, step, total)[0]
