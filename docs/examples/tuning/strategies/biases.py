"""BitFit, as an example of a strategy of fine-tuning in a plug-in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from foreword.nn.model import ModelSettings
from foreword.ranges import LearningRate, Ranged
from foreword.tuning.network import Network


@dataclass(frozen=True)
class Biases(Ranged):
    """Train the head and, of the backbone, the biases alone.

    Attributes:
        lr: peak learning rate.

    Reference: Ben Zaken et al. 2022, "BitFit".
    """

    trains_backbone: ClassVar[bool] = True

    lr: LearningRate = 1e-3

    def peak_lr(self, settings: ModelSettings) -> float:
        """Return the peak learning rate, whatever the backbone."""
        return self.lr

    def prepare(self, network: Network) -> None:
        """Mark the parameters that are trained."""
        for name, parameter in network.backbone.named_parameters():
            parameter.requires_grad_(name.endswith("bias"))
        network.head.requires_grad_(True)

    def train(self, network: Network) -> None:
        """Set the network to training mode."""
        network.train()
