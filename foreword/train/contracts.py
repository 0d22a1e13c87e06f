"""What training asks of an optimizer and a schedule."""

from __future__ import annotations

from typing import Protocol

from torch import nn
from torch.optim import Optimizer


class OptimizerSettings(Protocol):
    """A kind in `train/optim/`."""

    @property
    def lr(self) -> float:
        """The peak learning rate."""

    def build(self, model: nn.Module) -> Optimizer:
        """The optimizer over the model's parameters."""


class Schedule(Protocol):
    """A kind in `train/schedule/`."""

    def factor(self, progress: float, step: int, total: float) -> float:
        """What to multiply the peak learning rate with.

        Args:
            progress: share of the budget that is spent, 0 to 1.
            step: steps done.
            total: steps in all, estimated where the budget is not in steps.
        """
