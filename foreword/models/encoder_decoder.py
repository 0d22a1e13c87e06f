"""Two stacks: an encoder over the source, a decoder over the target that attends to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foreword.nn.embedding import Embedding
from foreword.nn.model import Backbone
from foreword.nn.stack import Stack, StackSettings
from foreword.types import Batch, Hidden


@dataclass(frozen=True)
class EncoderDecoder(StackSettings):
    """Encoder and decoder with one embedding (T5).

    Attributes:
        decoder_layers: blocks of the decoder; as many as of the encoder if unsaid.

    Reference: Vaswani et al. 2017; Raffel et al. 2020.
    """

    decoder_layers: int | None = None

    def build(self, vocab: int) -> Backbone:
        """The backbone for a vocabulary of `vocab` ids."""
        return EncoderDecoderBackbone(self, vocab)


class EncoderDecoderBackbone(Backbone):
    """Embedding, encoder, decoder."""

    def __init__(self, settings: EncoderDecoder, vocab: int) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = Embedding(settings, vocab)
        self.encoder = Stack(settings, settings.layers, is_causal=False)
        self.decoder = Stack(
            settings, settings.decoder_layers or settings.layers, is_causal=True, crosses=True
        )

    def forward(self, batch: Batch, memory: Any = None) -> Hidden:
        """The decoder's states (batch, length, d_model).

        With `memory` of an earlier call the source is not read again: its keys and values are
        in the memory.
        """
        source = None
        if memory is None:
            assert batch.source is not None
            x = self.embedding(batch.source, self.encoder.position)
            source = self.encoder(x, batch.source.mask).states
        x = self.embedding(batch, self.decoder.position)
        read = self.decoder(x, batch.mask, memory, source=source, cross_mask=batch.cross_mask)
        return Hidden(read.states, read.memory)
