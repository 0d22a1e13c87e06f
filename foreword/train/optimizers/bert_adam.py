"""Adam without the correction of its first steps, as BERT was fine-tuned with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from foreword.settings.ranges import Decay, Epsilon, LearningRate, ShareBelowOne
from foreword.train.optimizers._contract import ONE_RATE, OptimizerSettings, RateFactors
from foreword.train.optimizers._decay import decay_groups


@dataclass(frozen=True)
class BERTAdam(OptimizerSettings):
    """Adam whose means of gradients begin at 0 and are not corrected for it.

    For beta2 = 0.999 the first steps are about three times as long as AdamW's, which makes the
    fine-tuning on few examples fail for some seeds. It is here to be compared with; `adamw` has the
    correction.

    Attributes:
        lr: peak learning rate.
        beta1: decay rate of the mean of gradients.
        beta2: decay rate of the mean of squared gradients.
        eps: added to the root of the mean of squares.
        decay: decoupled weight decay, multiplied by the learning rate.

    Reference: Devlin et al. 2019, their code; Zhang et al. 2021, section 4; Mosbach et al. 2021,
    section 5.
    """

    lr: LearningRate = 1e-3
    beta1: ShareBelowOne = 0.9
    beta2: ShareBelowOne = 0.999
    eps: Epsilon = 1e-6
    decay: Decay = 0.01

    def build(self, model: nn.Module, factors: RateFactors = ONE_RATE) -> Optimizer:
        """Return the optimizer over the parameters that are trained."""
        defaults = {"lr": self.lr, "beta1": self.beta1, "beta2": self.beta2, "eps": self.eps}
        return _BERTAdam(decay_groups(model, self.decay, self.lr, factors), defaults)


class _BERTAdam(Optimizer):
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter, parameter.grad, group)

    def _step(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        for name in ("mean", "square"):
            if name not in state:
                state[name] = torch.zeros_like(parameter)
        mean = state["mean"].lerp_(grad, 1 - group["beta1"])
        square = state["square"].mul_(group["beta2"]).addcmul_(grad, grad, value=1 - group["beta2"])
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.addcdiv_(mean, square.sqrt().add_(group["eps"]), value=-group["lr"])
