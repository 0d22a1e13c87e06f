"""Stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Interval
from torch import nn
from torch.optim import Optimizer

from foreword.settings.ranges import Decay, ShareBelowOne
from foreword.train.optimizers._contract import ONE_RATE, OptimizerSettings, RateFactors
from foreword.train.optimizers._decay import decay_groups


@dataclass(frozen=True)
class SGD(OptimizerSettings):
    """SGD with momentum, on the gradient of the mean loss per prediction.

    Where a paper sums the loss over the steps of a row, its rate is that many times smaller, and
    its clipping that many times larger.

    Attributes:
        lr: peak learning rate.
        momentum: share of the previous step that is added.
        decay: weight decay, added to the gradient, on matrices and embeddings only.

    Also called: gradient descent.
    """

    lr: Annotated[float, Interval(gt=0, le=100)] = 1.0
    momentum: ShareBelowOne = 0.0
    decay: Decay = 0.0

    def build(self, model: nn.Module, factors: RateFactors = ONE_RATE) -> Optimizer:
        groups = decay_groups(model, self.decay, self.lr, factors)
        return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum)
