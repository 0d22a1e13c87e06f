"""The one Transformer: blocks of attention and feed-forward, and a stack of them.

Encoder, decoder, prefix decoder and the two sides of an encoder-decoder are this stack; they
differ by mask and layout alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from foreword.kinds import part
from foreword.nn.attention import Attention, Cache, Pattern, prepare
from foreword.nn.dropout import Dropout
from foreword.nn.feedforward import FeedForward
from foreword.nn.masks import Mask
from foreword.nn.norm import build_norm
from foreword.nn.position import Position, PositionScheme

if TYPE_CHECKING:
    from foreword.nn.model import Backbone

LayerMemory = tuple[Cache, Cache | None]  # of the row itself, and of the source


@dataclass(frozen=True)
class StackSettings(ABC):
    """The settings that every Transformer has; a kind in `models/` adds its own.

    Attributes:
        d_model: width of the residual stream.
        layers: number of blocks (of the encoder, where there is one).
        heads: attention heads.
        d_head: width of a head; d_model / heads if unsaid.
        d_ff: width of the feed-forward layer; 4 d_model if unsaid.
        activation: of the feed-forward layer; `geglu` and `swiglu` are gated.
        norm: LayerNorm or RMSNorm.
        norm_order: `pre` normalises what enters a part, `post` the sum that leaves it.
        norm_eps: added to the variance.
        bias: whether linear maps and LayerNorms have biases.
        position: how a token's place is told.
        segments: number of segment embeddings (BERT has 2), 0 for none.
        normalise_embedding: LayerNorm after the embeddings (BERT).
        dropout: of embeddings and of each part's output.
        attention_dropout: of attention weights.
        scale_scores: divide attention scores by sqrt(d_head); T5 does not.
        tied: the output layer is the embedding.
        scale_logits: divide the states by sqrt(d_model) before a tied output layer (T5).
        init: how weights start; see `foreword.nn.init`.
        init_std: standard deviation of `bert` and `gpt2` initialisation.
    """

    d_model: int = 256
    layers: int = 4
    heads: int = 4
    d_head: int | None = None
    d_ff: int | None = None
    activation: Literal["relu", "gelu", "gelu_tanh", "geglu", "geglu_tanh", "swiglu"] = "gelu"
    norm: Literal["layer", "rms"] = "layer"
    norm_order: Literal["pre", "post"] = "pre"
    norm_eps: float = 1e-5
    bias: bool = True
    position: Position = part("nn/positions", "learned")
    segments: int = 0
    normalise_embedding: bool = False
    dropout: float = 0.1
    attention_dropout: float = 0.1
    scale_scores: bool = True
    tied: bool = True
    scale_logits: bool = False
    init: Literal["bert", "gpt2", "t5"] = "bert"
    init_std: float = 0.02

    def __post_init__(self) -> None:
        for name in ("d_model", "layers", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1, got {getattr(self, name)}")
        if self.d_head is None and self.d_model % self.heads:
            near = [h for h in range(1, self.d_model + 1) if self.d_model % h == 0]
            best = min(near, key=lambda h: abs(h - self.heads))
            raise ValueError(
                f"heads: d_model {self.d_model} is not divisible by {self.heads} heads; "
                f"{best} heads would do, or set d_head"
            )
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: must be in [0, 1), got {getattr(self, name)}")
        if self.d_ff is not None and self.d_ff < 1:
            raise ValueError(f"d_ff: must be at least 1, got {self.d_ff}")

    @abstractmethod
    def build(self, vocab: int) -> Backbone:
        """The backbone for a vocabulary of `vocab` ids, its weights not yet initialised."""

    @property
    def head_width(self) -> int:
        """d_head, worked out."""
        return self.d_head or self.d_model // self.heads

    @property
    def ff_width(self) -> int:
        """d_ff, worked out."""
        return self.d_ff or 4 * self.d_model


class Block(nn.Module):
    """Self-attention, cross-attention where there is a source, feed-forward."""

    def __init__(self, settings: StackSettings, *, crosses: bool) -> None:
        super().__init__()
        self.is_pre = settings.norm_order == "pre"
        self.attention = _attention(settings)
        self.attention_norm = _norm(settings)
        self.cross = _attention(settings) if crosses else None
        self.cross_norm = _norm(settings) if crosses else None
        self.feedforward = FeedForward(
            settings.d_model,
            settings.ff_width,
            settings.activation,
            bias=settings.bias,
        )
        self.feedforward_norm = _norm(settings)
        self.dropout = Dropout(settings.dropout)

    def forward(
        self,
        x: Tensor,
        pattern: Pattern,
        position: PositionScheme,
        memory: LayerMemory | None = None,
        source: Tensor | None = None,
        cross_pattern: Pattern | None = None,
    ) -> tuple[Tensor, LayerMemory]:
        """(batch, length, d_model) -> the same, and the keys and values to remember."""
        start = 0 if memory is None else memory[0][0].shape[2]
        entering = self.attention_norm(x) if self.is_pre else x
        k, v = self.attention.keys_values(entering)
        k = position.rotate(k, start)
        if memory is not None:
            k, v = torch.cat([memory[0][0], k], dim=2), torch.cat([memory[0][1], v], dim=2)
        x = self._leave(
            x, self.attention(entering, (k, v), pattern, position, start), self.attention_norm
        )
        kept: Cache | None = None
        if self.cross is not None and self.cross_norm is not None and cross_pattern is not None:
            entering = self.cross_norm(x) if self.is_pre else x
            kept = memory[1] if memory is not None else None
            if kept is None:
                assert source is not None
                kept = self.cross.keys_values(source)
            x = self._leave(
                x, self.cross(entering, kept, cross_pattern, None, start), self.cross_norm
            )
        entering = self.feedforward_norm(x) if self.is_pre else x
        x = self._leave(x, self.feedforward(entering), self.feedforward_norm)
        return x, ((k, v), kept)

    def _leave(self, x: Tensor, part: Tensor, norm: nn.Module) -> Tensor:
        x = x + self.dropout(part)
        return x if self.is_pre else norm(x)


def _attention(settings: StackSettings) -> Attention:
    return Attention(
        settings.d_model,
        settings.heads,
        settings.head_width,
        bias=settings.bias,
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
    """

    def __init__(
        self, settings: StackSettings, layers: int, *, is_causal: bool, crosses: bool = False
    ) -> None:
        super().__init__()
        self.position = settings.position.build(
            settings.d_model, settings.heads, settings.head_width, is_causal=is_causal
        )
        self.blocks = nn.ModuleList(Block(settings, crosses=crosses) for _ in range(layers))
        self.final_norm = _norm(settings) if settings.norm_order == "pre" else nn.Identity()
        self.drops_attention = settings.attention_dropout > 0

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        memory: list[LayerMemory] | None = None,
        source: Tensor | None = None,
        cross_mask: Mask | None = None,
    ) -> tuple[Tensor, list[LayerMemory]]:
        """Runs the blocks.

        Args:
            x: (batch, length, d_model), embedded.
            mask: over (length, remembered + length).
            memory: per layer, what an earlier call returned: the key-value cache.
            source: (batch, source length, d_model), for blocks that cross.
            cross_mask: over (length, source length).

        Returns:
            States (batch, length, d_model), normalised, and the memory for the next call.
        """
        batch, length, _ = x.shape
        start = memory[0][0][0].shape[2] if memory else 0
        # FlexAttention has no dropout of attention weights; SDPA does.
        flex = x.is_cuda and length > 1 and not (self.training and self.drops_attention)
        places = torch.arange(start + length, device=x.device)
        bias = self.position.bias(places[start:], places)
        pattern = prepare(mask, bias, (batch, length, start + length), _scores_like(x), flex=flex)
        cross_pattern = None
        if cross_mask is not None:
            keys = memory[0][1][0].shape[2] if memory and memory[0][1] else 0
            keys = source.shape[1] if source is not None else keys
            cross_pattern = prepare(
                cross_mask, None, (batch, length, keys), _scores_like(x), flex=flex
            )
        kept = []
        for number, block in enumerate(self.blocks):
            remembered = memory[number] if memory else None
            x, layer_memory = block(x, pattern, self.position, remembered, source, cross_pattern)
            kept.append(layer_memory)
        return self.final_norm(x), kept


def _scores_like(x: Tensor) -> Tensor:
    """An empty tensor of the dtype that attention will run in, under autocast too."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        return torch.empty(0, device=x.device, dtype=torch.get_autocast_dtype(kind))
    return x.new_empty(0)
