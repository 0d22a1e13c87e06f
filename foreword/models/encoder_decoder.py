"""Encoder-decoders: one stack over the source, one over the target that attends to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

from torch import Tensor, nn

from foreword.nn.model import Backbone, SourceBackbone
from foreword.nn.stack import Stack, StackOutput
from foreword.nn.stack_settings import StackSettings
from foreword.settings import kinds
from foreword.settings.ranges import Count
from foreword.types import Batch, Hidden


@dataclass(frozen=True)
class EncoderDecoder(StackSettings):
    """Encoder and decoder with a shared embedding (T5).

    Attributes:
        decoder_layers: blocks of the decoder; default `layers`, those of the encoder.
        tied_stacks: make block n of the decoder block n of the encoder, plus a cross-attention
            of its own (T5's "enc-dec, shared", section 3.2.2).
        rotates_cross: rotate queries and keys of cross-attention, as position `rotary` does in
            self-attention, by the batch's positions; layout `encoder_decoder` counts these in the
            source with `positions = "source"`.

    Reference: Vaswani et al. 2017; Raffel et al. 2020; Du et al. 2022 ("GLM"), section 2.2.
    """

    reads_source: ClassVar[bool] = True

    decoder_layers: Count | None = None
    tied_stacks: bool = False
    rotates_cross: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tied_stacks and self.decoder_layers not in (None, self.layers):
            raise ValueError(
                f"decoder_layers: tied_stacks requires as many as layers, {self.layers}, "
                f"got {self.decoder_layers}"
            )
        if self.rotates_cross and kinds.name_of(self.position) != "rotary":
            raise ValueError(
                f"rotates_cross: requires position 'rotary', got '{kinds.name_of(self.position)}'"
            )

    @property
    def depth(self) -> int:
        """Number of layers of both stacks together."""
        return self.layers + (self.decoder_layers or self.layers)

    def build(self, vocab: int) -> Backbone:
        return EncoderDecoderBackbone(self, vocab)


class EncoderDecoderBackbone(SourceBackbone):
    """Embedding, encoder, decoder."""

    def __init__(self, settings: EncoderDecoder, vocab: int) -> None:
        super().__init__()
        self.settings, self.rotates_cross = settings, settings.rotates_cross
        self.embedding = settings.build_embedding(vocab)
        self.encoder = Stack(settings, settings.layers, is_causal=False)
        self.decoder = Stack(
            settings, settings.decoder_layers or settings.layers, is_causal=True, crosses=True
        )
        if settings.tied_stacks:
            self._tie()

    def _tie(self) -> None:
        """Share self-attention, feed-forward layer and their norms between the stacks."""
        for decoder, encoder in zip(self.decoder.blocks, self.encoder.blocks, strict=True):
            decoder.attention, decoder.attention_norm = encoder.attention, encoder.attention_norm
            decoder.feedforward = encoder.feedforward
            decoder.feedforward_norm = encoder.feedforward_norm

    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        """Return the decoder's states (batch, length, d_model).

        With `cache` of an earlier call the source is not read again: the cache has its keys and
        values.
        """
        return self._run(batch, cache, keeps_layers=False)

    def by_layer(self, batch: Batch, cache: Any = None) -> Hidden:
        """Like `forward`, with the states of each layer of the encoder."""
        return self._run(batch, cache, keeps_layers=True)

    def _run(self, batch: Batch, cache: Any, *, keeps_layers: bool) -> Hidden:
        source = layers = None
        if cache is None:
            assert batch.source is not None
            encoded = self._encode(batch.source, keeps_layers=keeps_layers)
            source, layers = encoded.states, encoded.layers
        x = self.embedding(batch, self.decoder.position)
        output = self.decoder(
            x,
            batch.mask,
            cache,
            source=source,
            cross_mask=batch.cross_mask,
            source_positions=batch.positions if self.rotates_cross else None,
        )
        return Hidden(output.states, output.cache, layers=layers)

    def with_layer_gradients(self, batch: Batch) -> Hidden:
        return self.by_layer(batch)

    def layer_modules(self) -> list[nn.Module]:
        return self.encoder.layer_modules() + self.decoder.layer_modules()

    def encode(self, source: Batch) -> Tensor:
        return self._encode(source).states

    def _encode(self, source: Batch, *, keeps_layers: bool = False) -> StackOutput:
        x = self.embedding(source, self.encoder.position)
        return cast(StackOutput, self.encoder(x, source.mask, keeps_layers=keeps_layers))
