"""Train everything: the fine-tuning of BERT and GPT."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.settings.ranges import LearningRateOrZero
from foreword.tuning.network import Network
from foreword.tuning.strategies._depth import RatedByWidth


@dataclass(frozen=True)
class Full(RatedByWidth):
    """Training of backbone and head at one learning rate.

    By default the rate follows the width: 3e-5 * (768 / d_model)^2, at most 1e-3. That is the
    middle of the paper's choices for BERT-Base (2e-5, 3e-5, 5e-5), 1.7e-5 for BERT-Large, where
    2e-5 is common, and 2.7e-4 for a width of 256, where ELECTRA-Small is tuned at 3e-4. Weights
    initialised as T5's are larger, and so is their rate, five times. Word vectors have 1e-2.

    Attributes:
        lr: peak learning rate; 0 for the rule above.

    Also called: fine-tuning.
    Reference: Devlin et al. 2019, section 4.1 and appendix A.3; Clark et al. 2020, appendix B.
    """

    lr: LearningRateOrZero = 0.0

    def prepare(self, network: Network, seed: int) -> None:
        network.requires_grad_(True)
