"""The length of a run, in steps, epochs, tokens, FLOPs or hours."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from foreword.errors import UserError
from foreword.formatting import rough
from foreword.settings.ranges import Flops, Ranged
from foreword.train.settings import TrainSettings

Unit = Literal["steps", "epochs", "tokens", "flops", "hours"]
UNITS: tuple[Unit, ...] = get_args(Unit)


@dataclass
class Progress:
    """The part of a budget that a run has used; stored in every checkpoint.

    Attributes:
        steps: training steps.
        tokens: tokens of source and target read, without padding.
        flops: floating-point operations, those of first embeddings included.
        seconds: wall-clock time, likewise.
        epochs: how many times the text was read, by rows.
    """

    steps: int = 0
    tokens: int = 0
    flops: float = 0.0
    seconds: float = 0.0
    epochs: float = 0.0


@dataclass(frozen=True)
class Budget(Ranged):
    """The length of a run in one unit.

    Attributes:
        unit: the unit of `amount`.
        amount: the run ends when this much is used.
    """

    unit: Unit
    amount: Flops

    @classmethod
    def of(cls, settings: TrainSettings) -> Budget:
        """Return the settings' budget: the first set of hours, flops, tokens, epochs, steps."""
        unit = next(unit for unit in reversed(UNITS) if getattr(settings, unit) is not None)
        return cls(unit, getattr(settings, unit))

    def applied_to(self, settings: TrainSettings) -> TrainSettings:
        """Return the settings with this budget instead of their own."""
        amount = math.ceil(self.amount) if self.unit in ("tokens", "steps") else self.amount
        none: dict[str, Any] = dict.fromkeys(("hours", "tokens", "flops", "epochs"))
        return replace(settings, **{**none, self.unit: amount})

    def require_step(self, flops: float) -> None:
        """Raise a UserError if it is in FLOPs, and less than those of one step."""
        if self.unit == "flops" and self.amount < flops:
            raise UserError(
                f"train.flops: one step takes {flops:.3g} FLOPs, and the budget is "
                f"{self.describe()}; give a budget of many steps, or set a smaller train.batch"
            )

    def progress(self, spent: Progress) -> float:
        """Return the share that is spent, 0 to 1."""
        used = {
            "steps": float(spent.steps),
            "epochs": spent.epochs,
            "tokens": float(spent.tokens),
            "flops": spent.flops,
            "hours": spent.seconds / 3600,
        }[self.unit]
        return min(1.0, used / self.amount)

    def progress_of_steps(self, spent: Progress, before: Progress) -> float:
        """Return the share of its steps that are taken, 0 to 1, which schedules follow.

        Args:
            spent: the part of the budget that is used.
            before: the part that was used before the first step.
        """
        used = self.progress(before)
        return (self.progress(spent) - used) / (1 - used) if used < 1 else 1.0

    def total_steps(self, steps: int, progress: float) -> float:
        """Return the total number of steps, or an estimate: `steps / progress`; 1,000 at first.

        Args:
            steps: the number of steps taken.
            progress: the share of all steps that they are.
        """
        if self.unit == "steps":
            return self.amount
        return steps / progress if progress else 1000.0

    def describe(self) -> str:
        """Return the budget in words: `10,000 steps`."""
        if self.unit == "flops":
            return f"{self.amount:.3g} FLOPs"
        if self.unit == "hours":
            return rough(3600 * self.amount)
        return f"{self.amount:,.15g} {self.unit}"
