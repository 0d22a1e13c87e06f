"""Full rate for some epochs, then decay with every epoch, as recurrent models were trained."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.settings.ranges import Count, PositiveShare, Ranged, Share
from foreword.train.warmup import Warmup


@dataclass(frozen=True)
class Epochs(Ranged):
    """The budget after the warm-up, divided into equal parts that stand for epochs.

    Attributes:
        warmup: its length, in `steps` or as a `share` of the budget.
        epochs: parts of the budget.
        full: parts at the full rate.
        decay: factor applied at the beginning of each later part.
        floor: the least factor.

    Reference: Zaremba et al. 2014, section 4.1.
    """

    warmup: Warmup = Warmup(share=0.0)
    epochs: Count = 13
    full: Count = 4
    decay: PositiveShare = 0.5
    floor: Share = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.full > self.epochs:
            raise ValueError(f"full: must be at most epochs, {self.epochs}, got {self.full}")

    def factor(self, progress: float, step: int, total: float) -> float:
        rise, after = self.warmup.factor_and_rest(progress, step, total)
        epoch = min(int(after * self.epochs + 1e-9), self.epochs - 1)
        return rise * max(self.floor, self.decay ** max(epoch + 1 - self.full, 0))
