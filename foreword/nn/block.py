"""One layer of the Transformer: self-attention, cross-attention to a source, feed-forward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from foreword.nn.attention import Attention, AttentionInputs, AttentionParts
from foreword.nn.attentions._contract import MixerKind, Recurrence, RecurrenceKind
from foreword.nn.cache import Cache, GrowingLayer, LayerCache, LayerState, StateLayer
from foreword.nn.dropout import Dropout
from foreword.nn.feedforward import FeedForward
from foreword.nn.stack_settings import StackSettings


class Block(nn.Module):
    """Self-attention, or what takes its place, cross-attention to a source, a feed-forward layer.

    Settings leave out the feed-forward layer, the residual connections or the norms, to show what
    each is for.

    Args:
        settings: widths and choices.
        mixer: the kind of its attention.
        crosses: whether it attends to a source.
        like: a block whose attention or feed-forward layer it shares, by `settings.share`.
    """

    def __init__(
        self, settings: StackSettings, mixer: MixerKind, *, crosses: bool, like: Block | None
    ) -> None:
        super().__init__()
        self.is_pre, self.has_residuals = settings.norm_position != "post", settings.residuals
        self.residual_scale = settings.residual_scale
        self.attention: Attention | Recurrence
        self.attention_norm: nn.Module
        self.cross: Attention | None
        self.cross_norm: nn.Module | None
        self.feedforward: FeedForward | None
        self.feedforward_norm: nn.Module
        # Attentions, shared with `like` or new.
        if like is not None and settings.share == "attention":
            self.attention, self.attention_norm = like.attention, like.attention_norm
            self.cross, self.cross_norm = like.cross, like.cross_norm
        else:
            self.attention_norm = norm_of(settings)
            self.attention = (
                mixer.build(
                    settings.d_model, settings.heads, settings.head_width, settings.norm_eps
                )
                if isinstance(mixer, RecurrenceKind)
                else _attention(settings)
            )
            self.cross = _attention(settings) if crosses else None
            self.cross_norm = norm_of(settings) if crosses else None
        # Feed-forward layer, shared or new.
        if like is not None and settings.share == "feedforward":
            self.feedforward, self.feedforward_norm = like.feedforward, like.feedforward_norm
        elif not settings.feedforward:
            self.feedforward, self.feedforward_norm = None, nn.Identity()
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
        cache: LayerCache | GrowingLayer | StateLayer | None = None,
        memory: Tensor | None = None,
        source: Tensor | None = None,
        cross: AttentionInputs | None = None,
        query_stream: tuple[Tensor, AttentionInputs] | None = None,
    ) -> tuple[Tensor, LayerCache, Tensor | None]:
        """Apply the layer.

        Args:
            x: (batch, length, d_model).
            inputs: inputs of self-attention.
            cache: keys and values of earlier positions, or the state after them.
            memory: states of earlier positions, from which keys and values are computed;
                (batch, memory length, d_model).
            source: (batch, source length, d_model).
            cross: inputs of cross-attention.
            query_stream: states of the query stream and its attention inputs; its keys and values
                are those of x, the content stream.

        Returns:
            The new states, the key-value cache, the new states of the query stream.
        """
        if isinstance(self.attention, Recurrence):  # without keys, a memory, or streams
            return self._recur(self.attention, x, inputs, cache)
        # Keys and values of self-attention, from the memory and x, after the cached ones.
        context = x if memory is None else torch.cat([memory.to(x.dtype), x], dim=1)
        # Keys begin at position 0, but with a cache, where the queries are the last of them.
        are_all = memory is None and inputs.at is None
        positions = inputs.positions.queries if are_all else from_zero(context)
        normalised = self._pre_norm(context, self.attention_norm)
        k, v = self.attention.keys_values(normalised)
        if inputs.position is not None:
            k = inputs.position.rotate(k, positions)
        source_kv = None
        if isinstance(cache, GrowingLayer):
            (k, v), source_kv = cache.append(k, v), cache.source
        elif isinstance(cache, tuple):
            k, v = torch.cat([cache[0][0], k], dim=2), torch.cat([cache[0][1], v], dim=2)
            source_kv = cache[1]
        # Keys and values of cross-attention, computed once for a source.
        if self.cross is not None and cross is not None and source_kv is None:
            assert source is not None
            k_source, v_source = self.cross.keys_values(source)
            if cross.position is not None:
                k_source = cross.position.rotate(k_source, from_zero(source))
            source_kv = k_source, v_source
        # The query stream attends to the same keys through its own mask.
        g = None
        if query_stream is not None:
            g, query_inputs = query_stream
            attended = self.attention(self._pre_norm(g, self.attention_norm), (k, v), query_inputs)
            g = self._finish(g, attended, source_kv, cross)
        # The content stream: queries from x alone, without the memory.
        if memory is not None:
            normalised = self._pre_norm(x, self.attention_norm)
        if inputs.at is not None:
            x, normalised = take_positions(x, inputs.at), take_positions(normalised, inputs.at)
        x = self._finish(x, self.attention(normalised, (k, v), inputs), source_kv, cross)
        new_cache: LayerCache = ((k, v), source_kv)
        if self.training:  # a compiled block would fill in gradients of 0 for each of them
            new_cache = _detached((k, v)), None if source_kv is None else _detached(source_kv)
        return x, new_cache, g

    def _recur(
        self, layer: Recurrence, x: Tensor, inputs: AttentionInputs, cache: Any
    ) -> tuple[Tensor, LayerCache, None]:
        """Apply the layer with a recurrence in place of attention; a growing cache is updated."""
        before: LayerState | None = cache.state if isinstance(cache, StateLayer) else cache
        normalised = self._pre_norm(x, self.attention_norm)
        read, after = layer(normalised, inputs.prepared_mask, before)
        if isinstance(cache, StateLayer):
            cache.state = after
        if self.training:  # see `forward`
            after = LayerState(tuple(part.detach() for part in after.parts))
        return self._finish(x, read, None, None), after, None

    def _finish(
        self, x: Tensor, attended: Tensor, source_kv: Cache | None, cross: AttentionInputs | None
    ) -> Tensor:
        """Add self-attention's output, then apply cross-attention and the feed-forward layer."""
        x = self._add_residual(x, attended, self.attention_norm)
        if self.cross is not None and self.cross_norm is not None and cross is not None:
            assert source_kv is not None
            normalised = self._pre_norm(x, self.cross_norm)
            x = self._add_residual(x, self.cross(normalised, source_kv, cross), self.cross_norm)
        if self.feedforward is None:
            return x
        normalised = self._pre_norm(x, self.feedforward_norm)
        return self._add_residual(x, self.feedforward(normalised), self.feedforward_norm)

    def _pre_norm(self, x: Tensor, norm: nn.Module) -> Tensor:
        """Return the input of a sublayer: normalised with pre-norm."""
        return norm(x) if self.is_pre else x

    def _add_residual(self, x: Tensor, output: Tensor, norm: nn.Module) -> Tensor:
        """Add a sublayer's output to the residual stream; normalise the sum with post-norm."""
        output = self.dropout(output)
        if self.residual_scale != 1:
            output = self.residual_scale * output
        x = x + output if self.has_residuals else output
        return x if self.is_pre else norm(x)


class EmbeddingShortcut(nn.Module):
    """The input of a block: a learned mix of the states below it and of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 0.0]))

    def forward(self, x: Tensor, embedded: Tensor) -> Tensor:
        """Return the mix of two tensors of one shape, (batch, length, d_model)."""
        return self.weight[0] * x + self.weight[1] * embedded


def _detached(cache: Cache) -> Cache:
    return cache[0].detach(), cache[1].detach()


def take_positions(x: Tensor, at: Tensor) -> Tensor:
    """Return x at some positions, (batch, length, width), (batch, n) -> (batch, n, width)."""
    return x[torch.arange(len(x), device=x.device)[:, None], at]


def from_zero(context: Tensor) -> Tensor:
    """Return the positions of (batch, length, ...), from 0; (length,) int64."""
    return torch.arange(context.shape[1], device=context.device)


def _attention(settings: StackSettings) -> Attention:
    bias = settings.bias if settings.attention_bias is None else settings.attention_bias
    eps = settings.norm_eps if settings.qk_norm else None
    return Attention(
        settings.d_model,
        settings.heads,
        settings.head_width,
        bias=bias,
        is_scaled=settings.scale_scores,
        dropout=settings.attention_dropout,
        parts=AttentionParts(settings.attention_prefix, eps, settings.attention_gate),
    )


def norm_of(settings: StackSettings) -> nn.Module:
    """Return a new norm of the states; nothing for a model without norms."""
    if settings.norm_position == "none":
        return nn.Identity()
    return settings.build_norm(settings.d_model)
