"""The Transformer: a stack of blocks.

Encoder, decoder, prefix decoder and both sides of an encoder-decoder are this stack; they differ
only by mask and layout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from foreword.nn.attention import AttentionInputs, can_flex, prepare_mask, takes_spans
from foreword.nn.attentions._contract import (
    AttentionKind,
    AttentionMechanism,
    MixerKind,
    RecurrenceKind,
)
from foreword.nn.attentions.dense import DenseAttention
from foreword.nn.block import Block, EmbeddingShortcut, from_zero, norm_of, take_positions
from foreword.nn.cache import GrowingCache, LayerCache, cached_length
from foreword.nn.dropout import Dropout
from foreword.nn.masks import Mask, MemoryMask
from foreword.nn.positions._contract import AttentionPositions, PositionKind, PositionScheme
from foreword.nn.precision import compute_dtype
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
        layers: the input of each layer, then `states`; None unless they are kept.
    """

    states: Tensor
    cache: list[LayerCache]
    query_stream: Tensor | None
    memory: tuple[Tensor, ...]
    layers: tuple[Tensor, ...] | None


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
        self.attention_kinds = [settings.attention_of(n) for n in range(layers)]
        blocks: list[Block] = []
        for _ in range(layers):
            first = blocks[0] if blocks and settings.share != "none" else None
            shared = first if settings.share == "all" else None
            kind = self.attention_kinds[len(blocks)]
            blocks.append(shared or Block(settings, kind, crosses=crosses, like=first))
        if not settings.normalise_first:
            blocks[0].attention_norm = nn.Identity()
        self.blocks = nn.ModuleList(blocks)
        shortcuts = layers - 1 if settings.embedding_shortcut else 0
        self.shortcuts = nn.ModuleList(EmbeddingShortcut() for _ in range(shortcuts))
        self.final_norm = norm_of(settings) if settings.norm_position == "pre" else nn.Identity()
        self.dropout = Dropout(settings.dropout if settings.ff_and_output_dropout else 0.0)
        self.drops_attention, self.head_width = settings.attention_dropout > 0, settings.head_width
        # Attention: the mechanism of each layer; recurrences need none.
        built = {
            kind: kind.build(settings.heads, settings.head_width, layers)
            for kind in dict.fromkeys(self.attention_kinds)
            if isinstance(kind, AttentionKind)
        }
        self.attention_mechanisms = nn.ModuleList(
            built[kind][n] if isinstance(kind, AttentionKind) else nn.Identity()
            for n, kind in enumerate(self.attention_kinds)
        )

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        cache: list[LayerCache] | GrowingCache | None = None,
        memory: tuple[Tensor, ...] | None = None,
        source: Tensor | None = None,
        cross_mask: Mask | None = None,
        source_positions: Tensor | None = None,
        query_stream: QueryStream | None = None,
        segments: Tensor | None = None,
        *,
        read_at: Tensor | None = None,
        keeps_layers: bool = False,
    ) -> StackOutput:
        """Run the blocks.

        Args:
            x: embeddings, (batch, length, d_model).
            mask: over (length, cached length + length).
            cache: key-value cache of each layer, from an earlier call; one that grows is extended.
            memory: states of the row before, from its call. The mask is then over the row alone,
                and every query sees the whole memory.
            source: (batch, source length, d_model), for cross-attention.
            cross_mask: over (length, source length).
            source_positions: positions of x in the source, (batch, length), by which
                cross-attention is rotated; None for cross-attention without positions.
            query_stream: the query stream of two-stream attention.
            segments: segment of each position, (batch, length), for schemes that compare them.
            read_at: the positions to return the states of, (batch, positions); all if None. The
                last layer computes only these where its attention can.
            keeps_layers: whether to return the states of each layer.
        """
        # Positions begin after the cache or the memory.
        length, start = x.shape[1], 0
        if isinstance(cache, list):
            start = cached_length(cache)
        if memory is not None:
            start = memory[0].shape[1]
            mask = MemoryMask(mask, start)
        if segments is not None and start:  # the memory is of the first segment
            segments = nn.functional.pad(segments, (start, 0))
        if isinstance(cache, GrowingCache):
            positions = AttentionPositions(*cache.begin(length, x.device))
        else:
            positions = AttentionPositions(from_zero(x) + start, start + length, segments)
        # Masks and biases are prepared once for all layers.
        flex = length > 1 and cache is None and can_flex(x)
        layer_inputs = self._layer_inputs(mask, positions, x, flex=flex)
        source_length = _source_length(source, cache)
        is_plain = cache is None and memory is None and source is None and query_stream is None
        if read_at is not None and is_plain and not keeps_layers and not self.memory_length:
            layer_inputs[-1] = layer_inputs[-1].select(read_at) or layer_inputs[-1]
        cross = self._cross_inputs(cross_mask, source_length, source_positions, x, flex=flex)
        query_inputs = self._query_inputs(query_stream, start, positions, x)
        # The blocks; the input of each is kept for the memory and for `StackOutput.layers` alone.
        new_cache, inputs = [], []
        g = None if query_stream is None else query_stream.x
        x0, g0 = x, g
        for n, block in enumerate(self.blocks):
            if n and self.shortcuts:
                x = self.shortcuts[n - 1](x, x0)
                g = None if g is None else self.shortcuts[n - 1](g, g0)
            if keeps_layers or self.memory_length:
                inputs.append(x)
            x, layer_cache, g = block(
                x,
                layer_inputs[n],
                cache[n] if cache is not None else None,
                memory[n] if memory is not None else None,
                source,
                cross,
                None if g is None else (g, query_inputs[n]),
            )
            new_cache.append(layer_cache)
        g = None if g is None else self.dropout(self.final_norm(g))
        if read_at is not None and layer_inputs[-1].at is None:
            x = take_positions(x, read_at)
        states = self.dropout(self.final_norm(x))
        new_memory = self._update_memory(inputs, memory)
        kept = (*inputs, states) if keeps_layers else None
        return StackOutput(states, new_cache, g, new_memory, kept)

    def layer_modules(self) -> list[nn.Module]:
        """Return the modules of each layer; the final norm belongs to the last."""
        pairs = zip(self.blocks, self.attention_mechanisms, strict=True)
        layers = [nn.ModuleList(pair) for pair in pairs]
        for layer, shortcut in zip(layers[1:], self.shortcuts, strict=False):
            layer.append(shortcut)
        layers[-1].append(self.final_norm)
        return list(layers)

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
        # Layers of one kind of attention share the prepared mask.
        prepared: dict[MixerKind, tuple[Any, PositionScheme | None]] = {}
        drops = self.training and self.drops_attention
        keys = torch.arange(positions.keys, device=x.device)
        shape = (x.shape[0], x.shape[1], positions.keys)
        for kind in dict.fromkeys(self.attention_kinds):
            if isinstance(kind, RecurrenceKind):
                prepared[kind] = kind.prepare(mask, None, shape, x, flex=False), None
                continue
            local = None if kind.is_dense else self.local_position
            scheme = local or self.position
            bias = _bias(scheme, positions.queries, keys)
            like = self._scores_like(x)
            # FlexAttention has no dropout of attention weights; SDPA and the kernel of spans do.
            takes_dropout = not drops or (kind.is_dense and takes_spans(mask, bias, like))
            takes_flex = flex and not scheme.adds_scores and takes_dropout
            prepared_mask = kind.prepare(mask, bias, shape, like, flex=takes_flex)
            if at is not None:
                prepared_mask = prepared_mask.select_queries(at.queries - positions.queries[0])
            prepared[kind] = prepared_mask, scheme
        inputs = []
        for n, kind in enumerate(self.attention_kinds):
            prepared_mask, position = prepared[kind]
            mechanism = cast(AttentionMechanism, self.attention_mechanisms[n])
            inputs.append(AttentionInputs(prepared_mask, mechanism, position, at or positions, n))
        return inputs

    def _cross_inputs(
        self,
        mask: Mask | None,
        source_length: int,
        rotated_by: Tensor | None,
        x: Tensor,
        *,
        flex: bool,
    ) -> AttentionInputs | None:
        """Return the inputs of cross-attention, the same in all layers; None without its mask."""
        if mask is None:
            return None
        shape = (x.shape[0], x.shape[1], source_length)
        flex = flex and not (self.training and self.drops_attention)
        prepared_mask = prepare_mask(mask, None, shape, self._scores_like(x), flex=flex)
        position = None if rotated_by is None else self.position
        queries = from_zero(x) if rotated_by is None else rotated_by
        positions = AttentionPositions(queries, source_length)
        return AttentionInputs(prepared_mask, DenseAttention(), position, positions, 0)

    def _query_inputs(
        self, stream: QueryStream | None, start: int, positions: AttentionPositions, x: Tensor
    ) -> list[AttentionInputs]:
        """Return the query stream's inputs of each layer: the same keys, other queries and mask."""
        if stream is None:
            return []
        mask = MemoryMask(stream.mask, start) if start else stream.mask
        at = replace(positions, queries=stream.at + start)
        return self._layer_inputs(mask, positions, x, flex=False, at=at)

    def _scores_like(self, x: Tensor) -> Tensor:
        """Return an empty tensor as wide as a head, of the dtype that attention will run in."""
        return x.new_empty(0, self.head_width, dtype=compute_dtype(x))

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


def _bias(position: PositionScheme, queries: Tensor, keys: Tensor) -> Tensor | None:
    """Return the bias of queries (queries,), or of those of each row, (rows, queries).

    Returns:
        (heads, queries, keys), or (rows, heads, queries, keys).
    """
    bias = position.bias(queries.flatten(), keys)
    if bias is None or queries.ndim == 1:
        return bias
    return bias.view(len(bias), *queries.shape, -1).transpose(0, 1)


def _source_length(source: Tensor | None, cache: list[LayerCache] | GrowingCache | None) -> int:
    """Return the length of the source, or of its keys in the cache; 0 if there is neither."""
    if source is not None:
        return source.shape[1]
    if isinstance(cache, GrowingCache):
        return cache.source_length
    first = cache[0] if cache else None
    return first[1][0].shape[2] if isinstance(first, tuple) and first[1] else 0
