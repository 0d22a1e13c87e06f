"""The Transformer: a stack of blocks.

Encoder, decoder, prefix decoder and both sides of an encoder-decoder are this stack; they differ
only by mask and layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from foreword.nn.attention import AttentionInputs, has_triton, prepare_mask
from foreword.nn.attentions._contract import AttentionMechanism
from foreword.nn.attentions.dense import Dense, DenseAttention
from foreword.nn.block import Block, LayerCache, from_zero, norm_of
from foreword.nn.dropout import Dropout
from foreword.nn.masks import Mask, MemoryMask
from foreword.nn.positions._contract import AttentionPositions, PositionKind, PositionScheme
from foreword.nn.stack_settings import StackSettings


@dataclass(frozen=True)
class QueryStream:
    """The query stream of two-stream attention: positions predicted without being read (XLNet).

    Attributes:
        x: states that know their position but not their token, (batch, predictions, d_model).
        at: these positions, (batch, predictions) int64.
        mask: over (length, length), without the memory.
    """

    x: Tensor
    at: Tensor
    mask: Mask


@dataclass(frozen=True)
class StackOutput:
    """The output of a stack.

    Attributes:
        states: (batch, length, d_model), normalised and, by `ff_and_output_dropout`, dropped out.
        cache: key-value cache of each layer, for the next call.
        query_stream: states of the query stream, (batch, predictions, d_model); or None.
        memory: the last positions of each layer's input, without gradient; each (batch, memory
            length, d_model).
        layers: the input of each layer, then `states`.
    """

    states: Tensor
    cache: list[LayerCache]
    query_stream: Tensor | None
    memory: tuple[Tensor, ...]
    layers: tuple[Tensor, ...]


class Stack(nn.Module):
    """Blocks in sequence, with the position scheme that they share.

    Args:
        settings: widths and choices.
        layers: number of blocks.
        is_causal: whether the mask is causal, for position schemes whose table depends on it.
        crosses: whether the blocks attend to a source.
        memory_length: positions of a row kept as the memory of the next row; 0 for none.
    """

    def __init__(
        self,
        settings: StackSettings,
        layers: int,
        *,
        is_causal: bool,
        crosses: bool = False,
        memory_length: int = 0,
    ) -> None:
        super().__init__()
        self.memory_length = memory_length
        # Position schemes: one for all layers, or another for layers of local attention.
        self.position = _position(settings.position, settings, layers, is_causal=is_causal)
        self.local_position = None
        if settings.local_position is not None:
            self.local_position = _position(
                settings.local_position, settings, layers, is_causal=is_causal
            )
        # Blocks, whose modules are shared by `settings.share`.
        blocks: list[Block] = []
        for _ in range(layers):
            first = blocks[0] if blocks and settings.share != "none" else None
            shared = first if settings.share == "all" else None
            blocks.append(shared or Block(settings, crosses=crosses, like=first))
        if not settings.normalise_first:
            blocks[0].attention_norm = nn.Identity()
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = norm_of(settings) if settings.norm_position == "pre" else nn.Identity()
        self.dropout = Dropout(settings.dropout if settings.ff_and_output_dropout else 0.0)
        self.drops_attention = settings.attention_dropout > 0
        # Attention mechanism of each layer; every `dense_every`-th is dense.
        self.attention = settings.attention
        self.attention_mechanisms = nn.ModuleList(
            settings.attention.build(settings.heads, settings.head_width, layers)
        )
        interval = settings.dense_every
        is_dense = isinstance(settings.attention, Dense)
        self.is_local = [
            not is_dense and not (interval and n % interval == 0) for n in range(layers)
        ]
        for n in range(layers):
            if not self.is_local[n]:
                self.attention_mechanisms[n] = DenseAttention()

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        cache: list[LayerCache] | None = None,
        memory: tuple[Tensor, ...] | None = None,
        source: Tensor | None = None,
        cross_mask: Mask | None = None,
        query_stream: QueryStream | None = None,
        segments: Tensor | None = None,
    ) -> StackOutput:
        """Run the blocks.

        Args:
            x: embeddings, (batch, length, d_model).
            mask: over (length, cached length + length).
            cache: key-value cache of each layer, from an earlier call.
            memory: states of the row before, from its call. The mask is then over the row alone,
                and every query sees the whole memory.
            source: (batch, source length, d_model), for cross-attention.
            cross_mask: over (length, source length).
            query_stream: the query stream of two-stream attention.
            segments: of each position, (batch, length), for position schemes that compare them.
        """
        # Positions begin after the cache or the memory.
        length = x.shape[1]
        start = cache[0][0][0].shape[2] if cache else 0
        if memory is not None:
            start = memory[0].shape[1]
            mask = MemoryMask(mask, start)
        # Masks and biases are prepared once for all layers. FlexAttention has no dropout of
        # attention weights; SDPA does.
        drops = self.training and self.drops_attention
        flex = x.is_cuda and length > 1 and not drops and has_triton()
        if segments is not None and start:  # the memory is of the first segment
            segments = nn.functional.pad(segments, (start, 0))
        positions = AttentionPositions(from_zero(x) + start, start + length, segments)
        layer_inputs = self._layer_inputs(mask, positions, x, flex=flex)
        # Cross-attention, the same in all layers; its keys may come from the cache.
        cross = None
        if cross_mask is not None:
            keys = cache[0][1][0].shape[2] if cache and cache[0][1] else 0
            keys = source.shape[1] if source is not None else keys
            shape = (len(x), length, keys)
            prepared_mask = prepare_mask(cross_mask, None, shape, _scores_like(x), flex=flex)
            cross = AttentionInputs(prepared_mask, DenseAttention(), None, positions, 0)
        # The query stream: the same keys, other queries and another mask.
        query_inputs: list[AttentionInputs] = []
        g = None
        if query_stream is not None:
            g, mask = (
                query_stream.x,
                MemoryMask(query_stream.mask, start) if start else query_stream.mask,
            )
            at = AttentionPositions(query_stream.at + start, positions.keys, segments)
            query_inputs = self._layer_inputs(mask, positions, x, flex=False, at=at)
        # The blocks; the input of each is kept for the memory and for `StackOutput.layers`.
        new_cache, inputs = [], []
        for n, block in enumerate(self.blocks):
            inputs.append(x)
            x, layer_cache, g = block(
                x,
                layer_inputs[n],
                cache[n] if cache else None,
                memory[n] if memory is not None else None,
                source,
                cross,
                None if g is None else (g, query_inputs[n]),
            )
            new_cache.append(layer_cache)
        g = None if g is None else self.dropout(self.final_norm(g))
        states = self.dropout(self.final_norm(x))
        new_memory = self._update_memory(inputs, memory)
        return StackOutput(states, new_cache, g, new_memory, (*inputs, states))

    def _layer_inputs(
        self,
        mask: Mask,
        positions: AttentionPositions,
        x: Tensor,
        *,
        flex: bool,
        at: AttentionPositions | None = None,
    ) -> list[AttentionInputs]:
        """Return the attention inputs of each layer; with `at`, those of these queries alone."""
        # One prepared mask for local layers, one for dense ones.
        prepared: dict[bool, tuple[Any, PositionScheme]] = {}
        keys = torch.arange(positions.keys, device=x.device)
        shape = (len(x), len(positions.queries), positions.keys)
        for is_local in set(self.is_local):
            position = (self.local_position if is_local else None) or self.position
            bias = position.bias(positions.queries, keys)
            prepare = self.attention.prepare if is_local else prepare_mask
            can_flex = flex and not position.adds_scores
            prepared_mask = prepare(mask, bias, shape, _scores_like(x), flex=can_flex)
            if at is not None:
                prepared_mask = prepared_mask.select_queries(at.queries - positions.queries[0])
            prepared[is_local] = prepared_mask, position
        return [
            AttentionInputs(
                prepared[is_local][0],
                cast(AttentionMechanism, mechanism),
                prepared[is_local][1],
                at or positions,
                n,
            )
            for n, (is_local, mechanism) in enumerate(
                zip(self.is_local, self.attention_mechanisms, strict=True)
            )
        ]

    def _update_memory(
        self, inputs: list[Tensor], memory: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, ...]:
        """Return the last positions of each layer's input, the old memory included."""
        if not self.memory_length:
            return ()
        if memory is not None:
            inputs = [torch.cat([a, b.to(a.dtype)], 1) for a, b in zip(memory, inputs, strict=True)]
        return tuple(states[:, -self.memory_length :].detach() for states in inputs)


def _position(
    position: PositionKind, settings: StackSettings, layers: int, *, is_causal: bool
) -> PositionScheme:
    return position.build(
        settings.embedding_width,
        settings.heads,
        settings.head_width,
        layers=layers,
        is_causal=is_causal,
    )


def _scores_like(x: Tensor) -> Tensor:
    """Return an empty tensor of the dtype that attention will run in, under autocast too."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        return torch.empty(0, device=x.device, dtype=torch.get_autocast_dtype(kind))
    return x.new_empty(0)
