"""Constant rate after a warm-up, then decay at the end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from foreword.settings.ranges import PositiveShare, Ranged, Share
from foreword.train.warmup import Warmup


@dataclass(frozen=True)
class WSD(Ranged):
    """Warm-up, then the peak rate, then decay to `floor` times the peak in the last part.

    Until the decay the rate does not depend on the length of the training, so one run serves many
    budgets: `foreword resume RUN/checkpoints/step-N --out NEW --steps M` decays from any of its
    checkpoints. A warm-up in steps makes the new run equal, byte for byte, to one trained alone.

    Attributes:
        warmup: its length, in `steps` or as a `share` of the budget.
        decay: length of the decay, as a share of the budget.
        shape: the decay falls as 1 - sqrt(t), or linearly.
        floor: the least factor, reached when the budget ends.

    Also called: warmup-stable-decay, trapezoidal.
    Reference: Hu et al. 2024, "MiniCPM", section 4; Hägele et al. 2024, whose 1 - sqrt it is.
    """

    warmup: Warmup = Warmup()
    decay: PositiveShare = 0.2
    shape: Literal["sqrt", "linear"] = "sqrt"
    floor: Share = 0.0

    def factor(self, progress: float, step: int, total: float) -> float:
        rise, _ = self.warmup.factor_and_rest(progress, step, total)
        decayed = min(1.0, max(0.0, 1 - (1 - progress) / self.decay))
        fall = math.sqrt(decayed) if self.shape == "sqrt" else decayed
        return rise * (1 - (1 - self.floor) * fall)
