"""Train the head alone: a probe of what pretraining learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from foreword.errors import UserError
from foreword.nn.model import ModelSettings
from foreword.settings.ranges import LearningRate
from foreword.tuning.network import Network, shares_parameters
from foreword.tuning.strategies._contract import Strategy
from foreword.tuning.strategies._depth import freeze_backbone


@dataclass(frozen=True)
class Frozen(Strategy):
    """A frozen backbone, unchanged bit for bit, without gradients and without dropout.

    The head is the task's. `foreword tune` gives it the hidden layer of the family's class in
    transformers, if that has one (BERT), and trains both of its layers: it is a linear probe with
    `--set task.hidden_layer=none`.

    Attributes:
        lr: peak learning rate of the head.

    Also called: feature extraction, linear probe.
    Reference: Peters et al. 2019, "To tune or not to tune?", section 2.
    """

    trains_backbone: ClassVar[bool] = False

    lr: LearningRate = 1e-3

    def peak_lr(self, settings: ModelSettings) -> float:
        return self.lr

    def prepare(self, network: Network, seed: int) -> None:
        if not any(True for _ in network.head.parameters()):
            raise UserError(
                "--strategy frozen: this task's head has nothing to train; use full, whose scores "
                "stand beside those of the model as it is"
            )
        if shares_parameters(network.head, network.backbone):
            raise UserError(
                "--strategy frozen: this task's head is the output layer, which this model shares "
                "with its embedding; use full"
            )
        freeze_backbone(network)
