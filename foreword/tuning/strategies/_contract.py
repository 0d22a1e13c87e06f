"""The contract of fine-tuning strategies, the kinds in `tuning/strategies/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from foreword.nn.model import ModelSettings
from foreword.settings.ranges import Ranged
from foreword.train.optimizers._contract import ONE_RATE, RateFactors
from foreword.tuning.network import Network


@dataclass(frozen=True)
class Strategy(Ranged, ABC):
    """Which parameters are trained, when, and at which rate: a kind in `tuning/strategies/`.

    A part of the network in which nothing is trained has no gradients and no dropout.

    Attributes:
        trains_backbone: whether any parameter of the backbone is trained.
        trains_new_tokens: whether the embeddings of tokens that pretraining never saw are trained,
            those of its tokens not.
        chooses: whether it chooses among ways to learn, of which fine-tuning is one;
            `foreword.tuning.best.tune` then takes the place of `foreword.tuning.tune`.
    """

    trains_backbone: ClassVar[bool] = True
    trains_new_tokens: ClassVar[bool] = False
    chooses: ClassVar[bool] = False

    @abstractmethod
    def peak_lr(self, settings: ModelSettings) -> float:
        """Return the peak learning rate for a backbone of these settings."""

    def model_settings(self, settings: ModelSettings) -> ModelSettings:
        """Return the settings of the tuned model; by default those of the pretrained one.

        Parameters that they add are initialised anew for each seed, leave the outputs as they are,
        and are saved with the tuned model.

        Raises:
            UserError: a model of these settings cannot have what the strategy adds.
        """
        return settings

    @abstractmethod
    def prepare(self, network: Network, seed: int) -> None:
        """Set `requires_grad` of each parameter to whether it is trained at any time.

        Modules that a strategy puts in place for the time of training leave the outputs as they
        are.

        Args:
            network: a network of `model_settings`.
            seed: seed of the modules that are put in place.

        Raises:
            UserError: the network has no such parts.
        """

    def rate_factors(self, network: Network) -> RateFactors:
        """Return the factors of the peak learning rate of single parameters; by default none."""
        return ONE_RATE

    def advance(self, network: Network, progress: float) -> None:
        """Set `requires_grad` for the next step, if the trained parameters change as training goes.

        Args:
            progress: the share of training that is done, 0 to 1.
        """

    def finish(self, network: Network) -> None:
        """Put what `prepare` added into the weights, so that the network has its first form."""
