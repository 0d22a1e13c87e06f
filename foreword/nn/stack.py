"""The one Transformer: blocks of attention and feed-forward, and a stack of them.

Encoder, decoder, prefix decoder and the two sides of an encoder-decoder are this stack; they
differ by mask and layout alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from foreword.kinds import part
from foreword.nn.attention import Attention, Cache, View, prepare
from foreword.nn.dropout import Dropout
from foreword.nn.feedforward import FeedForward
from foreword.nn.masks import Carried, Mask
from foreword.nn.mix import Mixer, Mixing
from foreword.nn.mixing.dense import Dense, DenseMixer
from foreword.nn.norm import build_norm
from foreword.nn.position import Places, Position, PositionScheme
from foreword.nn.settings import ModelSettings

LayerMemory = tuple[Cache, Cache | None]  # of the row itself, and of the source


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
        states: (batch, length, d_model), normalised.
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


@dataclass(frozen=True)
class StackSettings(ModelSettings):
    """The settings that every Transformer has; a kind in `models/` adds its own.

    Attributes:
        heads: attention heads.
        d_head: width of a head; d_model / heads if unsaid.
        d_ff: width of the feed-forward layer; 4 d_model if unsaid.
        activation: of the feed-forward layer; `geglu` and `swiglu` are gated.
        norm_order: `pre` normalises what enters a part, `post` the sum that leaves it.
        attention_bias: whether attention's linear maps have biases; as `bias` if unsaid.
        position: how a token's place is told.
        local_position: the same in layers whose mixing is not dense (ModernBERT); as `position` if
            unsaid. It cannot add to the embeddings.
        mixing: how queries meet keys; dense unless said otherwise.
        dense_every: with another mixing, layers 0, n, 2n, ... are dense; 0 for none.
        normalise_first: whether what enters the first attention is normalised, with `norm_order`
            `pre`; embeddings that are normalised need it no more (ModernBERT).
        share: what all layers have in common (ALBERT).
        attention_dropout: of attention weights.
        scale_scores: divide attention scores by sqrt(d_head); T5 does not.
    """

    heads: int = 4
    d_head: int | None = None
    d_ff: int | None = None
    activation: Literal["relu", "gelu", "gelu_tanh", "geglu", "geglu_tanh", "swiglu"] = "gelu"
    norm_order: Literal["pre", "post"] = "pre"
    attention_bias: bool | None = None
    position: Position = part("nn/positions", "learned")
    local_position: Position | None = part("nn/positions", is_optional=True)
    mixing: Mixing = part("nn/mixing", "dense")
    dense_every: int = 0
    normalise_first: bool = True
    share: Literal["none", "all", "attention", "feedforward"] = "none"
    attention_dropout: float = 0.1
    scale_scores: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads < 1:
            raise ValueError(f"heads: must be at least 1, got {self.heads}")
        if self.d_head is None and self.d_model % self.heads:
            near = [h for h in range(1, self.d_model + 1) if self.d_model % h == 0]
            best = min(near, key=lambda h: abs(h - self.heads))
            raise ValueError(
                f"heads: d_model {self.d_model} is not divisible by {self.heads} heads; "
                f"{best} heads would do, or set d_head"
            )
        if not 0 <= self.attention_dropout < 1:
            raise ValueError(f"attention_dropout: must be in [0, 1), got {self.attention_dropout}")
        if self.d_ff is not None and self.d_ff < 1:
            raise ValueError(f"d_ff: must be at least 1, got {self.d_ff}")
        if self.dense_every < 0:
            raise ValueError(f"dense_every: must not be negative, got {self.dense_every}")
        if not self.normalise_first and (self.norm_order != "pre" or self.share != "none"):
            raise ValueError(
                "normalise_first: false leaves the first of the norms out that stand before each "
                "part, so it wants norm_order 'pre' and share 'none'"
            )

    @property
    def limit(self) -> int | None:
        """The greatest length it can read, or None."""
        parts = (self.position, self.local_position, self.mixing)
        limits = [part.limit for part in parts if part is not None and part.limit is not None]
        return min(limits, default=None)

    @property
    def head_width(self) -> int:
        """d_head, worked out."""
        return self.d_head or self.d_model // self.heads

    @property
    def ff_width(self) -> int:
        """d_ff, worked out."""
        return self.d_ff or 4 * self.d_model


class Block(nn.Module):
    """Self-attention, cross-attention where there is a source, feed-forward.

    Args:
        settings: widths and choices.
        crosses: whether it attends to a source.
        like: a block whose attention or feed-forward it shares, as `settings.share` says.
    """

    def __init__(self, settings: StackSettings, *, crosses: bool, like: Block | None) -> None:
        super().__init__()
        self.is_pre = settings.norm_order == "pre"
        self.attention: Attention
        self.attention_norm: nn.Module
        self.cross: Attention | None
        self.cross_norm: nn.Module | None
        self.feedforward: FeedForward
        self.feedforward_norm: nn.Module
        if like is not None and settings.share == "attention":
            self.attention, self.attention_norm = like.attention, like.attention_norm
            self.cross, self.cross_norm = like.cross, like.cross_norm
        else:
            self.attention, self.attention_norm = _attention(settings), _norm(settings)
            self.cross = _attention(settings) if crosses else None
            self.cross_norm = _norm(settings) if crosses else None
        if like is not None and settings.share == "feedforward":
            self.feedforward, self.feedforward_norm = like.feedforward, like.feedforward_norm
        else:
            self.feedforward = FeedForward(
                settings.d_model, settings.ff_width, settings.activation, bias=settings.bias
            )
            self.feedforward_norm = _norm(settings)
        self.dropout = Dropout(settings.dropout)

    def forward(
        self,
        x: Tensor,
        view: View,
        memory: LayerMemory | None = None,
        carried: Tensor | None = None,
        source: Tensor | None = None,
        cross: View | None = None,
        second: tuple[Tensor, View] | None = None,
    ) -> tuple[Tensor, LayerMemory, Tensor | None]:
        """One layer.

        Args:
            x: (batch, length, d_model).
            view: of the self-attention.
            memory: keys and values of places before.
            carried: states of places before, to make keys and values of; (batch, carried, d_model).
            source: (batch, source length, d_model).
            cross: of the attention to the source.
            second: a second stream and its view; its keys and values are the first stream's.

        Returns:
            The new states, the keys and values to remember, the new states of the second stream.
        """
        context = x if carried is None else torch.cat([carried.to(x.dtype), x], dim=1)
        # Without memory keys begin at 0; with one, the new keys stand where the queries do.
        places = view.places.queries if memory is not None else _from_zero(context)
        k, v = self.attention.keys_values(self.attention_norm(context) if self.is_pre else context)
        if view.position is not None:
            k = view.position.rotate(k, places)
        if memory is not None:
            k, v = torch.cat([memory[0][0], k], dim=2), torch.cat([memory[0][1], v], dim=2)
        kept = memory[1] if memory is not None else None
        if self.cross is not None and cross is not None and kept is None:
            assert source is not None
            kept = self.cross.keys_values(source)
        g = None if second is None else self._rest(second[0], (k, v), second[1], kept, cross)
        return self._rest(x, (k, v), view, kept, cross), ((k, v), kept), g

    def _rest(
        self, x: Tensor, kv: Cache, view: View, source: Cache | None, cross: View | None
    ) -> Tensor:
        """Attention to keys and values, then to the source, then the feed-forward layer."""
        entering = self.attention_norm(x) if self.is_pre else x
        x = self._leave(x, self.attention(entering, kv, view), self.attention_norm)
        if self.cross is not None and self.cross_norm is not None and cross is not None:
            assert source is not None
            entering = self.cross_norm(x) if self.is_pre else x
            x = self._leave(x, self.cross(entering, source, cross), self.cross_norm)
        entering = self.feedforward_norm(x) if self.is_pre else x
        return self._leave(x, self.feedforward(entering), self.feedforward_norm)

    def _leave(self, x: Tensor, part: Tensor, norm: nn.Module) -> Tensor:
        x = x + self.dropout(part)
        return x if self.is_pre else norm(x)


def _from_zero(context: Tensor) -> Tensor:
    return torch.arange(context.shape[1], device=context.device)


def _attention(settings: StackSettings) -> Attention:
    bias = settings.bias if settings.attention_bias is None else settings.attention_bias
    return Attention(
        settings.d_model,
        settings.heads,
        settings.head_width,
        bias=bias,
        is_scaled=settings.scale_scores,
        dropout=settings.attention_dropout,
    )


def _norm(settings: StackSettings) -> nn.Module:
    return build_norm(settings.norm, settings.d_model, settings.norm_eps, bias=settings.bias)


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
        self.final_norm = _norm(settings) if settings.norm_order == "pre" else nn.Identity()
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
        flex = x.is_cuda and length > 1 and not (self.training and self.drops_attention)
        if segments is not None and start:  # what was carried over is of the first segment
            segments = nn.functional.pad(segments, (start, 0))
        places = Places(_from_zero(x) + start, start + length, segments)
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
        g = None if g is None else self.final_norm(g)
        states = self.final_norm(x)
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
