"""The contract of learning-rate schedules, the kinds in `train/schedules/`."""

from __future__ import annotations

from typing import Protocol


class Schedule(Protocol):
    """The settings of a learning-rate schedule: a kind in `train/schedules/`."""

    def factor(self, progress: float, step: int, total: float) -> float:
        """Return the factor of the peak learning rate.

        Args:
            progress: share of the steps' part of the budget that is spent, 0 to 1.
            step: number of steps taken.
            total: number of steps, estimated if the budget is not in steps.
        """
