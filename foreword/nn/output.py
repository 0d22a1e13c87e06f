"""What an output layer promises; a kind in `nn/outputs/` is one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from torch import nn

from foreword.ranges import Ranged

if TYPE_CHECKING:
    from foreword.nn.embedding import Embedding
    from foreword.nn.settings import ModelSettings


class Output(Ranged, ABC):
    """The settings of an output layer: a kind in `nn/outputs/`.

    Attributes:
        is_full: whether it has a row as wide as the states for every token, as heads of
            objectives have that bring their own.
    """

    is_full: ClassVar[bool] = False

    @abstractmethod
    def build(self, settings: ModelSettings, embedding: Embedding) -> nn.Module:
        """The head: `forward(states) -> logits (..., vocab)` and `loss(hidden, batch) -> Loss`.

        Args:
            settings: of the backbone; says whether the output layer is its embedding.
            embedding: of the backbone.
        """
