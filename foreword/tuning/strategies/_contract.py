"""The contract of fine-tuning strategies, the kinds in `tuning/strategies/`."""

from __future__ import annotations

from typing import ClassVar, Protocol

from foreword.nn.model import ModelSettings
from foreword.tuning.network import Network


class Strategy(Protocol):
    """Which parameters are trained, at which rate: a kind in `tuning/strategies/`.

    Attributes:
        trains_backbone: whether any parameter of the backbone is trained.
    """

    trains_backbone: ClassVar[bool]

    def peak_lr(self, settings: ModelSettings) -> float:
        """Return the peak learning rate for a backbone of these settings."""

    def prepare(self, network: Network) -> None:
        """Set `requires_grad` of each parameter."""

    def train(self, network: Network) -> None:
        """Put the trained parts into training mode, the others into evaluation mode."""
