"""One stack over one sequence: encoder, decoder or prefix decoder, as the layout says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foreword.nn.embedding import Embedding
from foreword.nn.model import Backbone
from foreword.nn.stack import Stack, StackSettings
from foreword.types import Batch, Hidden


@dataclass(frozen=True)
class Transformer(StackSettings):
    """One stack (BERT, GPT). The mask, and with it the direction, comes with the batch.

    Attributes:
        is_causal: for position schemes that bucket one direction or both (`t5_bias`).

    Reference: Vaswani et al. 2017; Devlin et al. 2019; Radford et al. 2018.
    """

    is_causal: bool = False

    def build(self, vocab: int) -> Backbone:
        """The backbone for a vocabulary of `vocab` ids."""
        return TransformerBackbone(self, vocab)


class TransformerBackbone(Backbone):
    """Embedding, then blocks."""

    def __init__(self, settings: Transformer, vocab: int) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = Embedding(settings, vocab)
        self.stack = Stack(settings, settings.layers, is_causal=settings.is_causal)

    def forward(self, batch: Batch, memory: Any = None) -> Hidden:
        """States (batch, length, d_model); `memory` is the key-value cache."""
        x = self.embedding(batch, self.stack.position)
        return Hidden(*self.stack(x, batch.mask, memory))
