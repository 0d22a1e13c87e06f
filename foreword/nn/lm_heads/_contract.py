"""The contract of LM heads, the kinds in `nn/lm_heads/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from foreword.settings.ranges import Ranged

if TYPE_CHECKING:
    from foreword.nn.embedding import Embedding
    from foreword.nn.heads import HeadInput, VocabularyHead


class LMHeadKind(Ranged, ABC):
    """The settings of an LM head: a kind in `nn/lm_heads/`.

    Attributes:
        is_full_softmax: whether every token has a row as wide as the states, as in the heads that
            objectives bring themselves.
    """

    is_full_softmax: ClassVar[bool] = False

    @abstractmethod
    def build(self, states: HeadInput, embedding: Embedding, *, is_tied: bool) -> VocabularyHead:
        """Return the head.

        Args:
            states: what it reads of the states.
            embedding: the backbone's embedding of tokens.
            is_tied: whether the embedding is the output layer.
        """
