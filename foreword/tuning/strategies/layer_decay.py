"""Train everything, the lower layers at lower rates."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.settings.ranges import LearningRateOrZero, PositiveShare
from foreword.train.optimizers._contract import RateFactors
from foreword.tuning.network import Network
from foreword.tuning.strategies._depth import RatedByWidth, decayed_rates


@dataclass(frozen=True)
class LayerDecay(RatedByWidth):
    """Training of everything at a learning rate that falls from layer to layer.

    The head has the full rate, the layer n below it decay^n of it, and the embeddings the lowest:
    lower layers hold what is general, and change least.

    Attributes:
        decay: factor of the learning rate from each layer to the one below. ELECTRA has 0.8 in
            12 layers and 0.9 in 24, ULMFiT 1 / 2.6 in 3.
        lr: peak learning rate, of the head; 0 for the rule of `full`.

    Also called: layer-wise learning rate decay, discriminative fine-tuning.
    Reference: Clark et al. 2020, appendix B; Howard & Ruder 2018, section 3.2.
    """

    decay: PositiveShare = 0.8
    lr: LearningRateOrZero = 0.0

    def prepare(self, network: Network, seed: int) -> None:
        network.require_layers(max(1, len(network.layer_modules())), "--strategy")
        network.requires_grad_(True)

    def rate_factors(self, network: Network) -> RateFactors:
        return decayed_rates(network, self.decay)
