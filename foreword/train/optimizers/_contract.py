"""The contract of optimizers, the kinds in `train/optimizers/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

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
