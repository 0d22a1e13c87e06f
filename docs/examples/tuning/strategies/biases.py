"""BitFit, as an example of a strategy of fine-tuning in a plug-in."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.nn.model import ModelSettings
from foreword.settings.ranges import LearningRate
from foreword.tuning.network import Network
from foreword.tuning.strategies._contract import Strategy


@dataclass(frozen=True)
class Biases(Strategy):
    """Train the head and, of the backbone, the biases alone.

    Attributes:
        lr: peak learning rate.

    Reference: Ben Zaken et al. 2022, "BitFit".
    """

    lr: LearningRate = 1e-3

    def peak_lr(self, settings: ModelSettings) -> float:
        """Return the peak learning rate, whatever the backbone."""
        return self.lr

    def prepare(self, network: Network, seed: int) -> None:
        """Mark the parameters that are trained."""
        for name, parameter in network.backbone.named_parameters():
            parameter.requires_grad_(name.endswith("bias"))
        network.head.requires_grad_(True)
