"""The average of a model's weights over the last steps of a training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """The mean of a model's weights after each step of the last share of the budget.

    While it is in place, the model has the mean, and this the weights to train further. Buffers are
    not averaged.

    Args:
        model: the model.
        share: the share of the budget at whose end weights are averaged; 0 for none.

    Reference: Izmailov et al. 2018; Hägele et al. 2024, section 4.1.

    Differs from the paper: every step counts, not one of each epoch.
    """

    def __init__(self, model: nn.Module, share: float) -> None:
        self._parameters, self._share = dict(model.named_parameters()), share
        self._other: dict[str, Tensor] = {}

    @property
    def other(self) -> Mapping[str, Tensor]:
        """The weights that the model does not have now; none before the last share."""
        return self._other

    def update(self, progress: float, steps: int) -> int:
        """Add the weights after a step, and return the number of steps in the mean.

        Args:
            progress: share of the budget that is spent.
            steps: number of steps in the mean; earlier ones than the last share are dropped.
        """
        if progress <= 1 - self._share + 1e-9:
            self._other = {}
            return 0
        if not self._other:
            self._other = {name: p.detach().clone() for name, p in self._parameters.items()}
            return 1
        weights = [p.detach() for p in self._parameters.values()]
        torch._foreach_lerp_(list(self._other.values()), weights, 1 / (steps + 1))
        return steps + 1

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the mean for a while, if there is one."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Give the model the weights to train further; those that it has are the mean.

        Args:
            weights: what `other` was while the mean was in place, placed like the model's; none if
                there was no mean.
        """
        self._other = {name: weights[name] for name in self._parameters if weights}
        self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for name, other in self._other.items():
            previous = other.clone()
            other.copy_(self._parameters[name])
            self._parameters[name].copy_(previous)
