"""AdamW: Adam with decoupled weight decay."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from foreword.settings.ranges import Decay, Epsilon, LearningRate, ShareBelowOne
from foreword.train.optimizers._contract import ONE_RATE, OptimizerSettings, RateFactors
from foreword.train.optimizers._decay import decay_groups


@dataclass(frozen=True)
class AdamW(OptimizerSettings):
    """Adam with weight decay on matrices and embeddings, not on biases, norms and other vectors.

    Attributes:
        lr: peak learning rate.
        beta1: decay rate of the mean of gradients.
        beta2: decay rate of the mean of squared gradients.
        eps: added to the root of the mean of squares.
        decay: decoupled weight decay, multiplied by the learning rate; with 0 it is plain Adam.

    Also called: Adam.
    Reference: Loshchilov & Hutter 2019.
    """

    lr: LearningRate = 1e-3
    beta1: ShareBelowOne = 0.9
    beta2: ShareBelowOne = 0.98
    eps: Epsilon = 1e-8
    decay: Decay = 0.01

    def build(self, model: nn.Module, factors: RateFactors = ONE_RATE) -> Optimizer:
        """Return torch's fused optimizer."""
        return torch.optim.AdamW(
            decay_groups(model, self.decay, self.lr, factors),
            lr=self.lr,
            betas=(self.beta1, self.beta2),
            eps=self.eps,
            fused=True,
        )
