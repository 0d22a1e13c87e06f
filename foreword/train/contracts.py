"""The contracts of optimizers and schedules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from torch import nn
from torch.optim import Optimizer

from foreword.ranges import LearningRate, Ranged


@dataclass(frozen=True)
class OptimizerSettings(Ranged, ABC):
    """The settings of an optimizer: a kind in `train/optimizers/`.

    Attributes:
        lr: peak learning rate; groups of parameters may have others, see `build`.
    """

    lr: LearningRate

    @abstractmethod
    def build(self, model: nn.Module) -> Optimizer:
        """Return the optimizer over the parameters that are trained.

        The learning rate of each group is its peak; the loop multiplies it by the schedule.
        """


class Schedule(Protocol):
    """The settings of a learning-rate schedule: a kind in `train/schedules/`."""

    def factor(self, progress: float, step: int, total: float) -> float:
        """Return what to multiply the peak learning rate with.

        Args:
            progress: share of the budget that is spent, 0 to 1.
            step: steps done.
            total: number of steps, estimated if the budget is not in steps.
        """
