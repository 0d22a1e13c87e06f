"""The contract of optimizers, the kinds in `train/optimizers/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, cast

from annotated_types import Interval
from torch import nn
from torch.optim import Optimizer

from foreword.nn.bias_table import BiasTable
from foreword.nn.embedding import Bigrams
from foreword.nn.heads import TokenHead
from foreword.settings.ranges import LearningRate, Ranged

RateFactors = Mapping[nn.Parameter, float]  # of the learning rate; parameters left out have 1

RateFactor = Annotated[float, Interval(ge=1e-3, le=1e3)]
ONE_RATE: RateFactors = MappingProxyType({})


@dataclass(frozen=True)
class OptimizerSettings(Ranged, ABC):
    """The settings of an optimizer: a kind in `train/optimizers/`.

    Attributes:
        lr: peak learning rate; groups of parameters may have others, see `build`.
        embeddings: the learning rate of embeddings (of tokens, pairs, segments and positions) and
            of a full softmax that is not tied to them, as a multiple of what it is otherwise.
    """

    lr: LearningRate
    embeddings: RateFactor = field(default=1.0, kw_only=True)

    def build_for(self, model: nn.Module, factors: RateFactors = ONE_RATE) -> Optimizer:
        """Return what `build` does, embeddings with the rate of their own."""
        if self.embeddings != 1.0:
            own = {p: factors.get(p, 1.0) * self.embeddings for p in embeddings(model)}
            factors = {**factors, **own}
        return self.build(model, factors)

    @abstractmethod
    def build(self, model: nn.Module, factors: RateFactors = ONE_RATE) -> Optimizer:
        """Return the optimizer over the parameters that are trained.

        The learning rate of each group is its peak; the loop multiplies it by the schedule.

        Args:
            model: whose parameters with `requires_grad` are trained.
            factors: the factors of the learning rate of some parameters, as in layer-wise decay.
        """


def embeddings(model: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the tables of embeddings, and the output layer of each full softmax."""
    for module in model.modules():
        is_table = isinstance(module, nn.Embedding | Bigrams) and not isinstance(module, BiasTable)
        if is_table or isinstance(module, TokenHead):
            yield cast(nn.Parameter, module.weight)  # a tied head's is the table
