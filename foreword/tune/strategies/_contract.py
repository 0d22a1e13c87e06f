"""The contract of fine-tuning strategies, the kinds in `tune/strategies/`."""

from __future__ import annotations

from typing import ClassVar, Protocol

from foreword.nn.model import ModelSettings
from foreword.tune.network import Network


class Strategy(Protocol):
    """What of the network is trained, and how fast: a kind in `tune/strategies/`.

    Attributes:
        trains_backbone: whether any part of the body is.
    """

    trains_backbone: ClassVar[bool]

    def peak_lr(self, settings: ModelSettings) -> float:
        """The peak learning rate for a body of these settings."""

    def prepare(self, network: Network) -> None:
        """Says of each parameter whether it is trained."""

    def train(self, network: Network) -> None:
        """Sets the parts that are trained to training mode, the others to evaluation mode."""
