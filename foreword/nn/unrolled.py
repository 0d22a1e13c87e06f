"""A recurrent stack taken apart: layer by layer, and step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from foreword.nn.dropout import dropout


def layers_of(core: nn.RNNBase) -> list[nn.RNNBase]:
    """Each layer of `core` as a core of its own, on the same weights."""
    found = []
    directions = 1 + core.bidirectional
    for n in range(core.num_layers):
        width = core.input_size if n == 0 else core.hidden_size * directions
        make: Callable[..., nn.RNNBase] = type(core)
        alone = make(
            width,
            core.hidden_size,
            bias=core.bias,
            batch_first=True,
            bidirectional=core.bidirectional,
            device="meta",
        )
        for name, _ in list(alone.named_parameters()):
            setattr(alone, name, getattr(core, name.replace("_l0", f"_l{n}")))
        found.append(alone)
    return found


def through(
    core: nn.RNNBase,
    x: Tensor | PackedSequence,
    state: Any,
    layers: Sequence[nn.RNNBase] | None = None,
) -> tuple[Any, Any]:
    """What `core(x, state)` gives; on the CPU dropout between its layers is Foreword's.

    Torch's own is slower there, and draws from a generator that all threads share.

    Args:
        core: torch's.
        x: what enters it.
        state: as torch has it.
        layers: of `core`, for who calls this many times.
    """
    device = x.data.device
    if not (core.training and core.dropout and device.type == "cpu"):
        found: tuple[Any, Any] = core(x, state)
        return found
    directions, ends = 1 + core.bidirectional, []
    for n, layer in enumerate(layers or layers_of(core)):
        part = slice(n * directions, (n + 1) * directions)
        begin = state
        if state is not None:
            begin = state[part] if isinstance(state, Tensor) else tuple(s[part] for s in state)
        if n:
            inner = dropout(x.data if isinstance(x, PackedSequence) else x, core.dropout)
            x = x._replace(data=inner) if isinstance(x, PackedSequence) else inner
        x, end = layer(x, begin)
        ends.append(end)
    if isinstance(ends[0], Tensor):
        return x, torch.cat(ends)
    return x, tuple(torch.cat(components) for components in zip(*ends, strict=True))


def unroll(
    layers: Sequence[nn.RNNBase],
    x: Tensor,
    is_new: Tensor,
    before: tuple[Tensor, ...] | None,
    *,
    residual: bool = False,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One step after another, every state on its way nudged by zeros.

    Args:
        layers: of one layer each, as `layers_of` gives them.
        x: what enters the first layer, (batch, length, width).
        is_new: where the state begins anew, (batch, length) bool.
        before: the state to begin with: (batch, layers, d_model) each; or None for zeros.
        residual: what enters a layer, but the first, is added to what leaves it.

    Returns:
        What leaves the last layer, (batch, length, d_model); and the zeros that were added: to x,
        and to the states of each layer, so that gradients with respect to them are those with
        respect to the states, steps to come and layers above included.
    """
    shapes = [(*x.shape[:2], layer.proj_size or layer.hidden_size) for layer in layers]
    nudges = [x.new_zeros(shape).requires_grad_() for shape in (x.shape, *shapes)]
    entering = x + nudges[0]
    for n, layer in enumerate(layers):
        state = None if before is None else tuple(part[None, :, n].to(x.dtype) for part in before)
        states = []
        for step in range(x.shape[1]):
            if state is not None and step:
                goes_on = (~is_new[:, step]).to(x.dtype)[None, :, None]
                state = tuple(part * goes_on for part in state)
            h, *cell = _step(layer, entering[:, step : step + 1], state)
            h = h + nudges[n + 1][None, :, step]
            state = (h, *cell)
            states.append(h[0])
        leaving = torch.stack(states, 1)
        entering = leaving + entering if residual and n else leaving
    return entering, tuple(nudges)


def _step(layer: nn.RNNBase, x: Tensor, state: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
    """The state after one more token: h, and c of an LSTM; (1, batch, d_model) each."""
    given = state if state is None or len(state) > 1 else state[0]
    _, after = layer(x, given)
    return after if isinstance(after, tuple) else (after,)
