"""Train the head and the top layers."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.settings.ranges import Count, LearningRateOrZero
from foreword.tuning.network import Network
from foreword.tuning.strategies._depth import RatedByWidth, train_top


@dataclass(frozen=True)
class TopLayers(RatedByWidth):
    """Training of the head and the top layers; the others have no gradients and no dropout.

    A step costs less than with `full`: nothing is propagated back below the trained layers. The
    embeddings stay frozen even if all layers are trained.

    Attributes:
        layers: how many layers are trained, the highest first.
        lr: peak learning rate; 0 for the rule of `full`.

    Also called: partial fine-tuning, freezing layers.
    Reference: Lee et al. 2019, "What would Elsa do?"; Yosinski et al. 2014.
    """

    layers: Count = 2
    lr: LearningRateOrZero = 0.0

    def prepare(self, network: Network, seed: int) -> None:
        network.require_layers(self.layers, "tune.strategy.layers")
        train_top(network, self.layers)
