"""Train learned keys and values that every attention sees besides the text's: prefix tuning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from foreword.errors import UserError
from foreword.nn.attention_prefix import AttentionPrefix
from foreword.nn.model import ModelSettings
from foreword.nn.stack_settings import StackSettings
from foreword.settings import kinds
from foreword.settings.ranges import LearningRate, PrefixLength
from foreword.tuning.network import Network
from foreword.tuning.strategies._contract import Strategy
from foreword.tuning.strategies._depth import freeze_backbone


@dataclass(frozen=True)
class PrefixTuning(Strategy):
    """Frozen pretrained weights, and a learned prefix of keys and values in each attention.

    The prefix is added behind a gate for each head that begins at 0, see
    `foreword.nn.attention_prefix`. Only prefixes, gates and the head are trained, and the
    embeddings of tokens that a task adds, such as the roles of `chat`. The saved model has the
    prefix as a setting, `model.attention_prefix`, and is used like any other; the classes of
    `transformers` have no such keys, so it cannot be exported. A model with a prefix of this length
    goes on with its own.

    Attributes:
        length: number of keys and values of each head.
        lr: peak learning rate, whatever the width: keys, values and gates are of one size in all
            models. P-tuning v2 has 1e-2 for BERT-Large on RTE.

    Also called: P-tuning v2, LLaMA-Adapter, zero-initialised attention.
    Reference: Li & Liang 2021, "Prefix-Tuning", section 4; Zhang et al. 2023, "LLaMA-Adapter",
    section 3.2 (the gate); Liu et al. 2022, "P-Tuning v2" (classifiers; the rate is their code's).
    Differs from the paper: the gated sum in place of one softmax over prefix and text, and keys and
    values without the network that Li and Liang compute them by in training.
    """

    trains_new_tokens: ClassVar[bool] = True

    length: PrefixLength = 16
    lr: LearningRate = 1e-2

    def peak_lr(self, settings: ModelSettings) -> float:
        return self.lr

    def model_settings(self, settings: ModelSettings) -> ModelSettings:
        if not isinstance(settings, StackSettings):
            raise UserError(
                f"--strategy prefix_tuning: model '{kinds.name_of(settings)}' has no "
                "self-attention to give a prefix; use full or frozen"
            )
        present = settings.attention_prefix
        if present not in (0, self.length):
            raise UserError(
                f"tune.strategy.length: the model has a prefix of {present}, which is trained on, "
                f"got {self.length}; use --set tune.strategy.length={present}, or another strategy"
            )
        return replace(settings, attention_prefix=self.length)

    def prepare(self, network: Network, seed: int) -> None:
        """Train the head and the prefixes of the layers that it reads, and freeze all else."""
        freeze_backbone(network)
        for layer in network.layer_modules():
            for module in layer.modules():
                if isinstance(module, AttentionPrefix):
                    module.requires_grad_(True)
