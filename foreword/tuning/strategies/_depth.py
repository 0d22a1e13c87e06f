"""Choosing a network's parameters by their depth, and the learning rate of most strategies."""

from __future__ import annotations

from torch import nn

from foreword.nn.model import ModelSettings
from foreword.train.optimizers._contract import ONE_RATE, RateFactors
from foreword.tuning.network import Network
from foreword.tuning.strategies._contract import Strategy


class RatedByWidth(Strategy):
    """A strategy whose peak learning rate follows the width, unless its setting `lr` is above 0."""

    lr: float

    def peak_lr(self, settings: ModelSettings) -> float:
        return self.lr or rate_by_width(settings)


def rate_by_width(settings: ModelSettings) -> float:
    """Return the learning rate of fine-tuning by the width, 3e-5 * (768 / d_model)^2, <= 1e-3.

    Five times that for weights initialised as T5's, which are larger; 1e-2 without layers, where
    only the rows of the embeddings that an example has are trained.
    """
    if not settings.has_layers:
        return 1e-2
    scale = 5.0 if settings.init == "t5" else 1.0
    return two_digits(min(1e-3, scale * 3e-5 * (768 / settings.d_model) ** 2))


def two_digits(rate: float) -> float:
    """Return a rate rounded to two digits."""
    return float(f"{rate:.2g}")


def freeze_backbone(network: Network) -> None:
    """Train what reads the backbone's states, and not what shares weights with the backbone."""
    network.requires_grad_(True)
    if network.token_head is not None:
        network.token_head.requires_grad_(False)
    network.backbone.requires_grad_(False)


def train_top(network: Network, layers: int) -> None:
    """Train the head and the top layers; with all layers, what stands below the first stays frozen.

    Args:
        layers: how many; 0 for the head alone.
    """
    freeze_backbone(network)
    depths = network.parameters_by_depth()[1:]
    for parameters in depths[len(depths) - layers :]:
        for parameter in parameters:
            parameter.requires_grad_(True)


def decayed_rates(network: Network, decay: float) -> RateFactors:
    """Return the factor decay^n of each parameter of the backbone, n layers below the head.

    The highest layer has n = 1; what stands below the first layer has the lowest rate.
    """
    if decay == 1:
        return ONE_RATE
    depths = network.parameters_by_depth()
    factors: dict[nn.Parameter, float] = {}
    for distance, parameters in enumerate(reversed(depths), 1):
        factors |= dict.fromkeys(parameters, decay**distance)
    return factors
