"""Lion, as an example of an optimizer in a plug-in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from foreword.settings.ranges import Decay, LearningRate, ShareBelowOne
from foreword.train.optimizers._contract import ONE_RATE, OptimizerSettings, RateFactors
from foreword.train.optimizers._decay import decay_groups


@dataclass(frozen=True)
class Lion(OptimizerSettings):
    """Steps of one size in the direction of the sign of a mean gradient.

    Attributes:
        lr: peak learning rate.
        beta1: weight of the mean in a step.
        beta2: decay of the mean.
        decay: weight decay, on matrices and embeddings only.

    Reference: Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2.
    """

    lr: LearningRate = 1e-4
    beta1: ShareBelowOne = 0.9
    beta2: ShareBelowOne = 0.99
    decay: Decay = 0.0

    def build(self, model: nn.Module, factors: RateFactors = ONE_RATE) -> Optimizer:
        """Return the optimizer over the parameters that are trained."""
        defaults = {"lr": self.lr, "beta1": self.beta1, "beta2": self.beta2}
        return _Lion(decay_groups(model, self.decay, self.lr, factors), defaults)


class _Lion(Optimizer):
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter, parameter.grad, group)

    def _step(self, parameter: torch.Tensor, grad: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        mean = state.setdefault("mean", torch.zeros_like(parameter))
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.sub_(group["lr"] * mean.lerp(grad, 1 - group["beta1"]).sign())
        mean.lerp_(grad, 1 - group["beta2"])
