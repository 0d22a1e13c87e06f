"""The one Transformer: a stack of blocks.

Encoder, decoder, prefix decoder and the two sides of an encoder-decoder are this stack; they
differ by mask and layout alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from foreword.nn.attention import View, has_triton, prepare
from foreword.nn.block import Block, LayerMemory, from_zero, norm_of
from foreword.nn.dropout import Dropout
from foreword.nn.masks import Carried, Mask
from foreword.nn.mix import Mixer
from foreword.nn.mixing.dense import Dense, DenseMixer
from foreword.nn.position import Places, Position, PositionScheme
from foreword.nn.stack_settings import StackSettings


@dataclass(frozen=True)
class Second:
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
class Read:
    """What a stack makes of a row.

    Attributes:
        states: (batch, length, d_model), normalised and, if the settings say so, dropped out.
        memory: per layer, for a next call: the key-value cache.
        second: of the second stream, (batch, predictions, d_model); or None.
        carried: what entered each layer, the last places of it, without gradient; each (batch,
            carried, d_model).
        layers: what entered each layer, and `states`.
    """

    states: Tensor
    memory: list[LayerMemory]
    second: Tensor | None
    carried: tuple[Tensor, ...]
    layers: tuple[Tensor, ...]


class Stack(nn.Module):
    """Blocks, one after another, with the position scheme that they share.

    Args:
        settings: widths and choices.
        layers: number of blocks.
        is_causal: for position schemes whose table depends on it.
        crosses: whether the blocks attend to a source.
        carries: places of a row that are carried over to the next one; 0 for none.
    """

    def __init__(
        self,
        settings: StackSettings,
        layers: int,
        *,
        is_causal: bool,
        crosses: bool = False,
        carries: int = 0,
    ) -> None:
        super().__init__()
        self.carries = carries
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
        self.final_norm = norm_of(settings) if settings.norm_order == "pre" else nn.Identity()
        self.dropout = Dropout(settings.dropout if settings.inner_dropout else 0.0)
        self.drops_attention = settings.attention_dropout > 0
        self.mixing = settings.mixing
        self.mixers = nn.ModuleList(
            settings.mixing.build(settings.heads, settings.head_width, layers)
        )
        every = settings.dense_every
        is_dense = isinstance(settings.mixing, Dense)
        self.is_local = [not is_dense and not (every and n % every == 0) for n in range(layers)]
        for n in range(layers):
            if not self.is_local[n]:
                self.mixers[n] = DenseMixer()

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        memory: list[LayerMemory] | None = None,
        carried: tuple[Tensor, ...] | None = None,
        source: Tensor | None = None,
        cross_mask: Mask | None = None,
        second: Second | None = None,
        segments: Tensor | None = None,
    ) -> Read:
        """Runs the blocks.

        Args:
            x: (batch, length, d_model), embedded.
            mask: over (length, remembered + length).
            memory: per layer, what an earlier call returned: the key-value cache.
            carried: what an earlier row's call returned: states to look back at. With it the mask
                is over the row alone, and all that was carried is seen.
            source: (batch, source length, d_model), for blocks that cross.
            cross_mask: over (length, source length).
            second: a second stream.
            segments: of each place, (batch, length), for position schemes that compare them.
        """
        length = x.shape[1]
        start = memory[0][0][0].shape[2] if memory else 0
        if carried is not None:
            start = carried[0].shape[1]
            mask = Carried(mask, start)
        # FlexAttention has no dropout of attention weights; SDPA does.
        drops = self.training and self.drops_attention
        flex = x.is_cuda and length > 1 and not drops and has_triton()
        if segments is not None and start:  # what was carried over is of the first segment
            segments = nn.functional.pad(segments, (start, 0))
        places = Places(from_zero(x) + start, start + length, segments)
        views = self._views(mask, places, x, flex=flex)
        cross = None
        if cross_mask is not None:
            keys = memory[0][1][0].shape[2] if memory and memory[0][1] else 0
            keys = source.shape[1] if source is not None else keys
            shape = (len(x), length, keys)
            pattern = prepare(cross_mask, None, shape, _scores_like(x), flex=flex)
            cross = View(pattern, DenseMixer(), None, places, 0)
        seconds: list[View] = []
        g = None
        if second is not None:
            g, mask = second.x, Carried(second.mask, start) if start else second.mask
            at = Places(second.at + start, places.keys, segments)
            seconds = self._views(mask, places, x, flex=False, at=at)
        kept, entered = [], []
        for n, block in enumerate(self.blocks):
            entered.append(x)
            x, layer_memory, g = block(
                x,
                views[n],
                memory[n] if memory else None,
                carried[n] if carried is not None else None,
                source,
                cross,
                None if g is None else (g, seconds[n]),
            )
            kept.append(layer_memory)
        g = None if g is None else self.dropout(self.final_norm(g))
        states = self.dropout(self.final_norm(x))
        return Read(states, kept, g, self._carry(entered, carried), (*entered, states))

    def _views(
        self, mask: Mask, places: Places, x: Tensor, *, flex: bool, at: Places | None = None
    ) -> list[View]:
        """What each layer sees; with `at`, from these places of the row alone."""
        ready: dict[bool, tuple[Any, PositionScheme]] = {}
        keys = torch.arange(places.keys, device=x.device)
        shape = (len(x), len(places.queries), places.keys)
        for is_local in set(self.is_local):
            position = (self.local_position if is_local else None) or self.position
            bias = position.bias(places.queries, keys)
            prepared = self.mixing.prepare if is_local else prepare
            blocks = flex and not position.adds_scores
            pattern = prepared(mask, bias, shape, _scores_like(x), flex=blocks)
            if at is not None:
                pattern = pattern.of(at.queries - places.queries[0])
            ready[is_local] = pattern, position
        return [
            View(ready[is_local][0], cast(Mixer, mixer), ready[is_local][1], at or places, n)
            for n, (is_local, mixer) in enumerate(zip(self.is_local, self.mixers, strict=True))
        ]

    def _carry(
        self, entered: list[Tensor], carried: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, ...]:
        """The last places of what entered each layer, what was carried before included."""
        if not self.carries:
            return ()
        if carried is not None:
            entered = [
                torch.cat([a, b.to(a.dtype)], 1) for a, b in zip(carried, entered, strict=True)
            ]
        return tuple(states[:, -self.carries :].detach() for states in entered)


def _position(
    position: Position, settings: StackSettings, layers: int, *, is_causal: bool
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
