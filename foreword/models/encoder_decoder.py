"""Two stacks: an encoder over the source, a decoder over the target that attends to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from torch import Tensor

from foreword.nn.embedding import Embedding
from foreword.nn.model import Backbone
from foreword.nn.stack import Stack, StackOutput
from foreword.nn.stack_settings import StackSettings
from foreword.ranges import Count
from foreword.types import Batch, Hidden


@dataclass(frozen=True)
class EncoderDecoder(StackSettings):
    """Encoder and decoder with one embedding (T5).

    Attributes:
        decoder_layers: blocks of the decoder; as many as of the encoder if unsaid.
        tied_stacks: block n of the decoder is block n of the encoder, with an attention to the
            source of its own (T5's "enc-dec, shared", section 3.2.2).

    Reference: Vaswani et al. 2017; Raffel et al. 2020.
    """

    reads_source: ClassVar[bool] = True

    decoder_layers: Count | None = None
    tied_stacks: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tied_stacks and self.decoder_layers not in (None, self.layers):
            raise ValueError(
                f"decoder_layers: tied_stacks wants as many as layers, {self.layers}, "
                f"got {self.decoder_layers}"
            )

    @property
    def depth(self) -> int:
        """Layers of both stacks."""
        return self.layers + (self.decoder_layers or self.layers)

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
        if settings.tied_stacks:
            self._tie()

    def _tie(self) -> None:
        """Self-attention, feed-forward and their norms of the decoder become the encoder's."""
        for mine, theirs in zip(self.decoder.blocks, self.encoder.blocks, strict=True):
            mine.attention, mine.attention_norm = theirs.attention, theirs.attention_norm
            mine.feedforward, mine.feedforward_norm = theirs.feedforward, theirs.feedforward_norm

    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        """The decoder's states (batch, length, d_model).

        With `cache` of an earlier call the source is not read again: its keys and values are
        in the memory.
        """
        return replace(self.by_layer(batch, cache), layers=None)

    def by_layer(self, batch: Batch, cache: Any = None) -> Hidden:
        """The same, with the states of each layer of the encoder."""
        source = layers = None
        if cache is None:
            assert batch.source is not None
            encoded = self._encode(batch.source)
            source, layers = encoded.states, encoded.layers
        x = self.embedding(batch, self.decoder.position)
        output = self.decoder(x, batch.mask, cache, source=source, cross_mask=batch.cross_mask)
        return Hidden(output.states, output.cache, layers=layers)

    def with_layer_gradients(self, batch: Batch) -> Hidden:
        """The same, for gradients."""
        return self.by_layer(batch)

    def encode(self, source: Batch) -> Tensor:
        """The encoder's states of a source, (batch, length, d_model)."""
        return self._encode(source).states

    def _encode(self, source: Batch) -> StackOutput:
        return cast(
            StackOutput, self.encoder(self.embedding(source, self.encoder.position), source.mask)
        )
