"""A recurrent stack run layer by layer, or step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from foreword.nn.dropout import dropout


def layers_of(core: nn.RNNBase) -> list[nn.RNNBase]:
    """Return each layer of `core` as a separate module that shares its weights."""
    layers = []
    directions = 1 + core.bidirectional
    for n in range(core.num_layers):
        width = core.input_size if n == 0 else core.hidden_size * directions
        build: Callable[..., nn.RNNBase] = type(core)
        layer = build(
            width,
            core.hidden_size,
            bias=core.bias,
            batch_first=True,
            bidirectional=core.bidirectional,
            device="meta",
        )
        for name, _ in list(layer.named_parameters()):
            setattr(layer, name, getattr(core, name.replace("_l0", f"_l{n}")))
        layers.append(layer)
    return layers


def run_layers(
    core: nn.RNNBase,
    x: Tensor | PackedSequence,
    state: Any,
    layers: Sequence[nn.RNNBase] | None = None,
) -> tuple[Any, Any]:
    """Return `core(x, state)`; on the CPU with Foreword's dropout between its layers.

    Torch's own is slower there and draws from a generator that all threads share.

    Args:
        core: a torch module.
        x: its input.
        state: in torch's layout.
        layers: `layers_of(core)`, to compute them once for many calls.
    """
    device = x.data.device
    if not (core.training and core.dropout and device.type == "cpu"):
        result: tuple[Any, Any] = core(x, state)
        return result
    directions, ends = 1 + core.bidirectional, []
    for n, layer in enumerate(layers or layers_of(core)):
        part = slice(n * directions, (n + 1) * directions)
        initial = state
        if state is not None:
            initial = state[part] if isinstance(state, Tensor) else tuple(s[part] for s in state)
        if n:
            dropped = dropout(x.data if isinstance(x, PackedSequence) else x, core.dropout)
            x = x._replace(data=dropped) if isinstance(x, PackedSequence) else dropped
        x, end = layer(x, initial)
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
    """Run the layers step by step, adding zeros to every state to obtain its gradient.

    Args:
        layers: single layers, as from `layers_of`.
        x: input of the first layer, (batch, length, width).
        is_new: where the state is reset, (batch, length) bool.
        before: initial state, (batch, layers, d_model) each; zeros if None.
        residual: add each layer's input, but the first's, to its output.

    Returns:
        The output of the last layer, (batch, length, d_model), and the zeros that were added: to x,
        and to the states of each layer. Gradients with respect to them are those with respect to
        the states, through later steps and layers above.
    """
    shapes = [(*x.shape[:2], layer.proj_size or layer.hidden_size) for layer in layers]
    zeros = [x.new_zeros(shape).requires_grad_() for shape in (x.shape, *shapes)]
    layer_input = x + zeros[0]
    for n, layer in enumerate(layers):
        state = None if before is None else tuple(part[None, :, n].to(x.dtype) for part in before)
        states = []
        for step in range(x.shape[1]):
            if state is not None and step:
                continues = (~is_new[:, step]).to(x.dtype)[None, :, None]
                state = tuple(part * continues for part in state)
            h, *cell = _step(layer, layer_input[:, step : step + 1], state)
            h = h + zeros[n + 1][None, :, step]
            state = (h, *cell)
            states.append(h[0])
        output = torch.stack(states, 1)
        layer_input = output + layer_input if residual and n else output
    return layer_input, tuple(zeros)


def _step(layer: nn.RNNBase, x: Tensor, state: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
    """Return the state after one more token: h, and c of an LSTM; (1, batch, d_model) each."""
    initial = state if state is None or len(state) > 1 else state[0]
    _, after = layer(x, initial)
    return after if isinstance(after, tuple) else (after,)
