"""The contract of optimizers, the kinds in `train/optimizers/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import nn
from torch.optim import Optimizer

from foreword.settings.ranges import LearningRate, Ranged

RateFactors = Mapping[nn.Parameter, float]  # of the learning rate; parameters left out have 1

ONE_RATE: RateFactors = MappingProxyType({})


@dataclass(frozen=True)
class OptimizerSettings(Ranged, ABC):
    """The settings of an optimizer: a kind in `train/optimizers/`.

    Attributes:
        lr: peak learning rate; groups of parameters may have others, see `build`.
    """

    lr: LearningRate

    @abstractmethod
    def build(self, model: nn.Module, factors: RateFactors = ONE_RATE) -> Optimizer:
        """Return the optimizer over the parameters that are trained.

        The learning rate of each group is its peak; the loop multiplies it by the schedule.

        Args:
            model: whose parameters with `requires_grad` are trained.
            factors: the factors of the learning rate of some parameters, as in layer-wise decay.
        """
