"""The full softmax: one score for each token of the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from foreword.nn.embedding import Embedding
from foreword.nn.heads import HeadInput, TokenHead, VocabularyHead
from foreword.nn.lm_heads._contract import LMHeadKind


@dataclass(frozen=True)
class Softmax(LMHeadKind):
    """States times the output layer, which is the embedding if the model is `tied`.

    Attributes:
        bias: whether each token has a bias.
    """

    is_full_softmax: ClassVar[bool] = True

    bias: bool = False

    def build(self, states: HeadInput, embedding: Embedding, *, is_tied: bool) -> VocabularyHead:
        return TokenHead(states, embedding, is_tied=is_tied, bias=self.bias)
