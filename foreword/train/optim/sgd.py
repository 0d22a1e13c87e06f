"""Stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer


@dataclass(frozen=True)
class Sgd:
    """The learning rate times the gradient of the mean loss per prediction.

    Where a paper sums the loss over the steps of a row, its rate is that many times smaller, and
    its clipping that many times larger.

    Attributes:
        lr: peak learning rate.
        momentum: share of the last step that is taken again.
        decay: weight decay, added to the gradient, of matrices only.
    """

    lr: float = 1.0
    momentum: float = 0.0
    decay: float = 0.0

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise ValueError(f"lr: must be positive, got {self.lr}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum: must be in [0, 1), got {self.momentum}")

    def build(self, model: nn.Module) -> Optimizer:
        """The optimizer over the parameters that are trained."""
        trained = [p for p in model.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in trained if p.ndim >= 2], "weight_decay": self.decay},
            {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
        ]
        return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum)
