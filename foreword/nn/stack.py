"""The one Transformer: a stack of blocks.

Encoder, decoder, prefix decoder and the two sides of an encoder-decoder are this stack; they
differ by mask and layout alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from foreword.nn.attention import AttentionInputs, has_triton, prepare_mask
from foreword.nn.attention_kind import AttentionMechanism
from foreword.nn.attentions.dense import Dense, DenseAttention
from foreword.nn.block import Block, LayerCache, from_zero, norm_of
from foreword.nn.dropout import Dropout
from foreword.nn.masks import Mask, MemoryMask
from foreword.nn.position import AttentionPositions, PositionKind, PositionScheme
from foreword.nn.stack_settings import StackSettings


@dataclass(frozen=True)
class QueryStream:
    """A second stream: places predicted without being read (XLNet).

    Attributes:
        x: states that know their place and nothing of their token, (batch, predictions, d_model).
        at: which places these are, (batch, predictions) int64.
        mask: over (length, length), without what was carried over.
    """

    x: Tensor
    at: Tensor
    mask: Mask


@dataclass(frozen=True)
class StackOutput:
    """What a stack makes of a row.

    Attributes:
        states: (batch, length, d_model), normalised and, if the settings say so, dropped out.
        cache: per layer, for a next call: the key-value cache.
        query_stream: of the second stream, (batch, predictions, d_model); or None.
        memory: what entered each layer, the last places of it, without gradient; each (batch,
            carried, d_model).
        layers: what entered each layer, and `states`.
    """

    states: Tensor
    cache: list[LayerCache]
    query_stream: Tensor | None
    memory: tuple[Tensor, ...]
    layers: tuple[Tensor, ...]


class Stack(nn.Module):
    """Blocks, one after another, with the position scheme that they share.

    Args:
        settings: widths and choices.
        layers: number of blocks.
        is_causal: for position schemes whose table depends on it.
        crosses: whether the blocks attend to a source.
        memory_length: places of a row that are carried over to the next one; 0 for none.
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
        self.position = _position(settings.position, settings, layers, is_causal=is_causal)
        self.local_position = None
        if settings.local_position is not None:
            self.local_position = _position(
                settings.local_position, settings, layers, is_causal=is_causal
            )
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
        self.attention = settings.attention
        self.attention_mechanisms = nn.ModuleList(
            settings.attention.build(settings.heads, settings.head_width, layers)
        )
        every = settings.dense_every
        is_dense = isinstance(settings.attention, Dense)
        self.is_local = [not is_dense and not (every and n % every == 0) for n in range(layers)]
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
        """Runs the blocks.

        Args:
            x: (batch, length, d_model), embedded.
            mask: over (length, remembered + length).
            cache: per layer, what an earlier call returned: the key-value cache.
            memory: what an earlier row's call returned: states to look back at. With it the mask
                is over the row alone, and all that was carried is seen.
            source: (batch, source length, d_model), for blocks that cross.
            cross_mask: over (length, source length).
            query_stream: a second stream.
            segments: of each place, (batch, length), for position schemes that compare them.
        """
        length = x.shape[1]
        start = cache[0][0][0].shape[2] if cache else 0
        if memory is not None:
            start = memory[0].shape[1]
            mask = MemoryMask(mask, start)
        # FlexAttention has no dropout of attention weights; SDPA does.
        drops = self.training and self.drops_attention
        flex = x.is_cuda and length > 1 and not drops and has_triton()
        if segments is not None and start:  # what was carried over is of the first segment
            segments = nn.functional.pad(segments, (start, 0))
        places = AttentionPositions(from_zero(x) + start, start + length, segments)
        layer_inputs = self._layer_inputs(mask, places, x, flex=flex)
        cross = None
        if cross_mask is not None:
            keys = cache[0][1][0].shape[2] if cache and cache[0][1] else 0
            keys = source.shape[1] if source is not None else keys
            shape = (len(x), length, keys)
            prepared_mask = prepare_mask(cross_mask, None, shape, _scores_like(x), flex=flex)
            cross = AttentionInputs(prepared_mask, DenseAttention(), None, places, 0)
        query_inputs: list[AttentionInputs] = []
        g = None
        if query_stream is not None:
            g, mask = (
                query_stream.x,
                MemoryMask(query_stream.mask, start) if start else query_stream.mask,
            )
            at = AttentionPositions(query_stream.at + start, places.keys, segments)
            query_inputs = self._layer_inputs(mask, places, x, flex=False, at=at)
        kept, entered = [], []
        for n, block in enumerate(self.blocks):
            entered.append(x)
            x, layer_memory, g = block(
                x,
                layer_inputs[n],
                cache[n] if cache else None,
                memory[n] if memory is not None else None,
                source,
                cross,
                None if g is None else (g, query_inputs[n]),
            )
            kept.append(layer_memory)
        g = None if g is None else self.dropout(self.final_norm(g))
        states = self.dropout(self.final_norm(x))
        return StackOutput(
            states, kept, g, self._update_memory(entered, memory), (*entered, states)
        )

    def _layer_inputs(
        self,
        mask: Mask,
        places: AttentionPositions,
        x: Tensor,
        *,
        flex: bool,
        at: AttentionPositions | None = None,
    ) -> list[AttentionInputs]:
        """What each layer sees; with `at`, from these places of the row alone."""
        ready: dict[bool, tuple[Any, PositionScheme]] = {}
        keys = torch.arange(places.keys, device=x.device)
        shape = (len(x), len(places.queries), places.keys)
        for is_local in set(self.is_local):
            position = (self.local_position if is_local else None) or self.position
            bias = position.bias(places.queries, keys)
            prepared = self.attention.prepare if is_local else prepare_mask
            blocks = flex and not position.adds_scores
            prepared_mask = prepared(mask, bias, shape, _scores_like(x), flex=blocks)
            if at is not None:
                prepared_mask = prepared_mask.select_queries(at.queries - places.queries[0])
            ready[is_local] = prepared_mask, position
        return [
            AttentionInputs(
                ready[is_local][0],
                cast(AttentionMechanism, mechanism),
                ready[is_local][1],
                at or places,
                n,
            )
            for n, (is_local, mechanism) in enumerate(
                zip(self.is_local, self.attention_mechanisms, strict=True)
            )
        ]

    def _update_memory(
        self, entered: list[Tensor], memory: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, ...]:
        """The last places of what entered each layer, what was carried before included."""
        if not self.memory_length:
            return ()
        if memory is not None:
            entered = [
                torch.cat([a, b.to(a.dtype)], 1) for a, b in zip(memory, entered, strict=True)
            ]
        return tuple(states[:, -self.memory_length :].detach() for states in entered)


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
    """An empty tensor of the dtype that attention will run in, under autocast too."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        return torch.empty(0, device=x.device, dtype=torch.get_autocast_dtype(kind))
    return x.new_empty(0)
