"""Train a low-rank change of the linear maps: LoRA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from foreword.errors import UserError
from foreword.nn.low_rank import LowRankLinear
from foreword.nn.model import ModelSettings
from foreword.settings.ranges import Count, LearningRateOrZero, Positive, ShareBelowOne
from foreword.tuning.network import Network
from foreword.tuning.strategies._contract import Strategy
from foreword.tuning.strategies._depth import freeze_backbone, rate_by_width, two_digits

RATE = 10  # the learning rate, as a multiple of that of `full`


@dataclass(frozen=True)
class LoRA(Strategy):
    """Frozen pretrained weights, to which low-rank changes alpha / rank * B A are learned.

    A (rank, inputs) begins at random and B (outputs, rank) at 0. Only these and the head are
    trained, and the embeddings of tokens that a task adds, such as the roles of `chat`. The saved
    model has the sum as its weights: it is as large and as fast as others, and is exported as they
    are.

    Attributes:
        rank: rank of the change.
        alpha: numerator of the change's scale, alpha / rank (`lora_alpha` of peft).
        dropout: share of the change's inputs dropped in training.
        targets: the linear maps of the layers that are changed, by their names in the model:
            `query`, `key_value` and `output` of attention, `up` and `down` of feed-forward layers.
        lr: peak learning rate; 0 for ten times that of `full`.

    Also called: low-rank adaptation.
    Reference: Hu et al. 2022, section 4.1; Dettmers et al. 2023, section 4 (all maps as targets).
    Differs from the paper: all maps of the layers by default, not only those of queries and values;
    keys and values are one map, with one A, as are the two maps of a gated feed-forward layer.
    """

    trains_new_tokens: ClassVar[bool] = True

    rank: Count = 8
    alpha: Positive = 16.0
    dropout: ShareBelowOne = 0.0
    targets: tuple[str, ...] = ("query", "key_value", "output", "up", "down")
    lr: LearningRateOrZero = 0.0

    def peak_lr(self, settings: ModelSettings) -> float:
        return self.lr or two_digits(RATE * rate_by_width(settings))

    def prepare(self, network: Network, seed: int) -> None:
        linear_maps = _linear_maps(network)
        names = {name for _, name, _ in linear_maps}
        unknown = [name for name in self.targets if name not in names]
        known = ", ".join(sorted(names)) or "none"
        if not self.targets:
            raise UserError(f"tune.strategy.targets: name at least one of {known}")
        if unknown:
            raise UserError(
                f"tune.strategy.targets: the model's layers have no linear map '{unknown[0]}'; "
                f"they have {known}"
            )
        freeze_backbone(network)
        random = torch.Generator().manual_seed(seed)
        for parent, name, linear in linear_maps:
            if name not in self.targets:
                continue
            most = min(linear.in_features, linear.out_features)
            if self.rank > most:
                raise UserError(
                    f"tune.strategy.rank: must be at most {most}, the smaller side of '{name}', "
                    f"got {self.rank}"
                )
            scale = self.alpha / self.rank
            setattr(parent, name, LowRankLinear(linear, self.rank, scale, self.dropout, random))

    def finish(self, network: Network) -> None:
        for parent, name, linear in _linear_maps(network):
            if isinstance(linear, LowRankLinear):
                setattr(parent, name, linear.merged())


def _linear_maps(network: Network) -> list[tuple[nn.Module, str, nn.Linear]]:
    """Return each linear map of the layers once: the module that has it, its name, the map."""
    modules = dict.fromkeys(m for layer in network.layer_modules() for m in layer.modules())
    return [
        (module, name, child)
        for module in modules
        for name, child in module.named_children()
        if isinstance(child, nn.Linear)
    ]
