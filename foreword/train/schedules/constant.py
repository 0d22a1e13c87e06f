"""Constant learning rate after a warm-up."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.train.warmup import Warmup


@dataclass(frozen=True)
class Constant:
    """Warm-up, then the peak rate to the end.

    Attributes:
        warmup: the rise before: `steps`, or a `share` of the budget.
    """

    warmup: Warmup = Warmup()

    def factor(self, progress: float, step: int, total: float) -> float:
        """Return what to multiply the peak learning rate with."""
        return self.warmup.factor_and_rest(progress, step, total)[0]
