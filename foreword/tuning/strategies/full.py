"""Train everything: the fine-tuning of BERT and GPT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Interval

from foreword.nn.model import ModelSettings
from foreword.ranges import Ranged
from foreword.tuning.network import Network


@dataclass(frozen=True)
class Full(Ranged):
    """Training of backbone and head at one learning rate.

    By default the rate follows the width: 3e-5 * (768 / d_model)^2, at most 1e-3. That is the
    middle of the paper's choices for BERT-Base (2e-5, 3e-5, 5e-5), 1.7e-5 for BERT-Large, where
    2e-5 is common, and 2.7e-4 for a width of 256, where ELECTRA-Small is tuned at 3e-4. Weights
    initialised as T5's are larger, and so is their rate, five times.

    Attributes:
        lr: peak learning rate; 0 for the rule above.

    Also called: fine-tuning.
    Reference: Devlin et al. 2019, section 4.1 and appendix A.3; Clark et al. 2020, appendix B.
    """

    trains_backbone: ClassVar[bool] = True

    lr: Annotated[float, Interval(ge=0, le=10)] = 0.0

    def peak_lr(self, settings: ModelSettings) -> float:
        if self.lr:
            return self.lr
        scale = 5.0 if settings.init == "t5" else 1.0
        return float(f"{min(1e-3, scale * 3e-5 * (768 / settings.d_model) ** 2):.2g}")

    def prepare(self, network: Network) -> None:
        """Let every parameter be trained."""
        network.requires_grad_(True)

    def train(self, network: Network) -> None:
        """Put the whole network into training mode."""
        network.train()
