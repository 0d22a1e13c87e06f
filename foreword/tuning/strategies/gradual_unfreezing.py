"""Train the head first, then one more layer at a time, from the top."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.settings.ranges import LearningRateOrZero, OpenShare, PositiveShare
from foreword.train.optimizers._contract import RateFactors
from foreword.tuning.network import Network
from foreword.tuning.strategies._depth import RatedByWidth, decayed_rates, train_top


@dataclass(frozen=True)
class GradualUnfreezing(RatedByWidth):
    """Training of the head first; then one layer after another joins it, the embeddings last.

    The new head learns before it disturbs the layers below. What is frozen has no gradients and no
    dropout.

    Attributes:
        over: share of the steps after which everything is trained; layers join at equal intervals.
        decay: factor of the learning rate from each layer to the one below, 1 for one rate;
            ULMFiT's is 1 / 2.6.
        lr: peak learning rate; 0 for the rule of `full`.

    Also called: ULMFiT.
    Reference: Howard & Ruder 2018, sections 3.2 (`decay`) and 3.3.
    Differs from the paper: by steps, where a layer joins in each epoch there; with n layers and m
    epochs that is over = (n + 1) / m.
    """

    over: OpenShare = 0.5
    decay: PositiveShare = 1.0
    lr: LearningRateOrZero = 0.0

    def prepare(self, network: Network, seed: int) -> None:
        network.require_layers(max(1, len(network.layer_modules())), "--strategy")
        network.requires_grad_(True)

    def rate_factors(self, network: Network) -> RateFactors:
        return decayed_rates(network, self.decay)

    def advance(self, network: Network, progress: float) -> None:
        steps = len(network.layer_modules()) + 1  # the embeddings are the last
        joined = min(steps, int(steps * progress / self.over + 1e-9))
        if joined == steps:
            network.requires_grad_(True)
            return
        train_top(network, joined)
        if not network.count_trained():  # a head without weights of its own
            train_top(network, 1)
