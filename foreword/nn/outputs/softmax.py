"""The full softmax: one score for each token of the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from foreword.nn.embedding import Embedding
from foreword.nn.heads import TokenHead
from foreword.nn.output import Output
from foreword.nn.settings import ModelSettings


@dataclass(frozen=True)
class Softmax(Output):
    """States times the output layer, which is the embedding where the model says `tied`.

    Attributes:
        bias: a bias per token.
    """

    is_full: ClassVar[bool] = True

    bias: bool = False

    def build(self, settings: ModelSettings, embedding: Embedding) -> nn.Module:
        """The head."""
        return TokenHead(settings, embedding, bias=self.bias)
