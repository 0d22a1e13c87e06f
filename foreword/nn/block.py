"""One layer of the Transformer: attention, attention to a source if there is one, feed-forward."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foreword.nn.attention import Attention, AttentionInputs, Cache
from foreword.nn.dropout import Dropout
from foreword.nn.feedforward import FeedForward
from foreword.nn.norm import build_norm
from foreword.nn.stack_settings import StackSettings

LayerCache = tuple[Cache, Cache | None]  # of the row itself, and of the source


class Block(nn.Module):
    """Self-attention, cross-attention where there is a source, feed-forward.

    Args:
        settings: widths and choices.
        crosses: whether it attends to a source.
        like: a block whose attention or feed-forward it shares, as `settings.share` says.
    """

    def __init__(self, settings: StackSettings, *, crosses: bool, like: Block | None) -> None:
        super().__init__()
        self.is_pre = settings.norm_position == "pre"
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
            self.attention, self.attention_norm = _attention(settings), norm_of(settings)
            self.cross = _attention(settings) if crosses else None
            self.cross_norm = norm_of(settings) if crosses else None
        if like is not None and settings.share == "feedforward":
            self.feedforward, self.feedforward_norm = like.feedforward, like.feedforward_norm
        else:
            self.feedforward = FeedForward(
                settings.d_model,
                settings.ff_width,
                settings.activation,
                bias=settings.bias,
                dropout=settings.dropout if settings.ff_and_output_dropout else 0.0,
            )
            self.feedforward_norm = norm_of(settings)
        self.dropout = Dropout(settings.dropout)

    def forward(
        self,
        x: Tensor,
        inputs: AttentionInputs,
        cache: LayerCache | None = None,
        memory: Tensor | None = None,
        source: Tensor | None = None,
        cross: AttentionInputs | None = None,
        query_stream: tuple[Tensor, AttentionInputs] | None = None,
    ) -> tuple[Tensor, LayerCache, Tensor | None]:
        """One layer.

        Args:
            x: (batch, length, d_model).
            inputs: of the self-attention.
            cache: keys and values of places before.
            memory: states of places before, to make keys and values of; (batch, carried, d_model).
            source: (batch, source length, d_model).
            cross: of the attention to the source.
            query_stream: a second stream and its view; its keys and values are the first stream's.

        Returns:
            The new states, the keys and values to remember, the new states of the second stream.
        """
        context = x if memory is None else torch.cat([memory.to(x.dtype), x], dim=1)
        # Without memory keys begin at 0; with one, the new keys stand where the queries do.
        places = inputs.positions.queries if cache is not None else from_zero(context)
        entering = self._enter(context, self.attention_norm)
        k, v = self.attention.keys_values(entering)
        if inputs.position is not None:
            k = inputs.position.rotate(k, places)
        if cache is not None:
            k, v = torch.cat([cache[0][0], k], dim=2), torch.cat([cache[0][1], v], dim=2)
        kept = cache[1] if cache is not None else None
        if self.cross is not None and cross is not None and kept is None:
            assert source is not None
            kept = self.cross.keys_values(source)
        if memory is not None:
            entering = self._enter(x, self.attention_norm)
        g = None
        if query_stream is not None:
            g, seen = query_stream
            asking = self._enter(g, self.attention_norm)
            g = self._rest(g, self.attention(asking, (k, v), seen), kept, cross)
        x = self._rest(x, self.attention(entering, (k, v), inputs), kept, cross)
        remembered: LayerCache = ((k, v), kept)
        if self.training:  # a compiled block would fill in gradients of 0 for each of them
            remembered = _detached((k, v)), None if kept is None else _detached(kept)
        return x, remembered, g

    def _rest(
        self, x: Tensor, attended: Tensor, source: Cache | None, cross: AttentionInputs | None
    ) -> Tensor:
        """Adds what attention found, attends to the source, then the feed-forward layer."""
        x = self._leave(x, attended, self.attention_norm)
        if self.cross is not None and self.cross_norm is not None and cross is not None:
            assert source is not None
            entering = self._enter(x, self.cross_norm)
            x = self._leave(x, self.cross(entering, source, cross), self.cross_norm)
        entering = self._enter(x, self.feedforward_norm)
        return self._leave(x, self.feedforward(entering), self.feedforward_norm)

    def _enter(self, x: Tensor, norm: nn.Module) -> Tensor:
        return norm(x) if self.is_pre else x

    def _leave(self, x: Tensor, part: Tensor, norm: nn.Module) -> Tensor:
        x = x + self.dropout(part)
        return x if self.is_pre else norm(x)


def _detached(cache: Cache) -> Cache:
    return cache[0].detach(), cache[1].detach()


def from_zero(context: Tensor) -> Tensor:
    """The places of (batch, length, ...), from 0; (length,) int64."""
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


def norm_of(settings: StackSettings) -> nn.Module:
    """A norm of the states."""
    return build_norm(settings.norm, settings.d_model, settings.norm_eps, bias=settings.bias)
