"""The warm-up that every schedule begins with."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.settings.ranges import CountOrZero, Ranged, ShareBelowOne


@dataclass(frozen=True)
class Warmup(Ranged):
    """A linear rise from near 0 to 1.

    Attributes:
        steps: its length in steps; 0 for `share`.
        share: its length as a share of the budget.
    """

    steps: CountOrZero = 0
    share: ShareBelowOne = 0.05

    def factor_and_rest(self, progress: float, step: int, total: float) -> tuple[float, float]:
        """Return the factor of the warm-up and the progress of the budget after it, each 0 to 1."""
        if self.steps:
            length = min(1.0, self.steps / max(total, 1.0))
            rise = min(1.0, (step + 1) / self.steps)
        else:
            length = self.share
            rise = min(1.0, (progress + 1 / max(total, 1.0)) / length) if length else 1.0
        after = (progress - length) / (1 - length) if length < 1 else 0.0
        return rise, min(1.0, max(0.0, after))
