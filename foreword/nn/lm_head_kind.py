"""What an output layer promises; a kind in `nn/lm_heads/` is one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from foreword.ranges import Ranged

if TYPE_CHECKING:
    from foreword.nn.embedding import Embedding
    from foreword.nn.heads import VocabularyHead
    from foreword.nn.settings import ModelSettings


class LMHeadKind(Ranged, ABC):
    """The settings of an output layer: a kind in `nn/lm_heads/`.

    Attributes:
        is_full_softmax: whether it has a row as wide as the states for every token, as heads of
            objectives have that bring their own.
    """

    is_full_softmax: ClassVar[bool] = False

    @abstractmethod
    def build(self, settings: ModelSettings, embedding: Embedding) -> VocabularyHead:
        """Return the head.

        Args:
            settings: of the backbone; says whether the output layer is its embedding.
            embedding: of the backbone.
        """
