"""The tensors that a GPU's kernels would keep for the backward pass, without a GPU.

Within `gpu_shapes`, attention, dropout and recurrent layers leave for backward what they would
leave on CUDA: the outputs of one fused kernel instead of the scores, masks of a byte instead of
numbers. Their results are shapes without meaning, for fake tensors (`foreword.runs.counted`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

Kernels = Literal["all", "loops"]
_kernels: ContextVar[Kernels | None] = ContextVar("kernels", default=None)


@contextmanager
def gpu_shapes(kernels: Kernels = "all") -> Iterator[None]:
    """Make kernels keep the tensors that they would keep on CUDA.

    Args:
        kernels: all, or those alone that replace loops: over the steps of recurrent layers, and
            over slices of the logits.
    """
    token = _kernels.set(kernels)
    try:
        yield
    finally:
        _kernels.reset(token)


def takes_gpu_shapes(kernels: Kernels = "all") -> bool:
    """Return whether these kernels run within `gpu_shapes`; never while a block is compiled."""
    return not torch.compiler.is_compiling() and _kernels.get() in ("all", kernels)


def device_type(tensor: Tensor) -> str:
    """Return the type of the tensor's device; `cuda` within `gpu_shapes`."""
    return "cuda" if takes_gpu_shapes("loops") else tensor.device.type


def fused_dropout(x: Tensor, rate: float) -> Tensor:
    """Return x after dropout, having saved a mask of one byte for each element."""
    return torch.native_dropout(x, rate, True)[0]


def fused_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Save for backward as a fused kernel does, and return the shape of attention's output.

    Queries, keys, values, output, and a float32 per query (Dao et al. 2022, algorithm 2).
    """
    return cast(Tensor, _FusedAttention.apply(q, k, v))  # type: ignore[no-untyped-call]


@torch.library.custom_op(
    "foreword::fused_attention",
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v) -> (Tensor, Tensor)",
)
def _fused_attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output and a number per query, without values, as one operation.

    Kernels write (batch, length, heads, width), as the output projection reads it.
    """
    batch, heads, length, _ = q.shape
    out = q.new_empty(batch, length, heads, v.shape[3]).transpose(1, 2)
    return out, q.new_empty(batch, heads, length, dtype=torch.float32)


_fused_attention.register_fake(_fused_attention._init_fn)  # the same: it has no values


class _FusedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor
        out, log_sums = _fused_attention(q, k, v)
        ctx.save_for_backward(q, k, v, out, log_sums)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, _, _ = ctx.saved_tensors
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def fused_recurrence(core: nn.RNNBase, x: Tensor | PackedSequence) -> tuple[Any, Any]:
    """Save for backward as a fused kernel does, and return the shapes of `core(x)`.

    Of each layer and step its input and output, the gates, the cell and the state, which cuDNN
    keeps in a reserve of about this size.
    """
    data = x.data if isinstance(x, PackedSequence) else x
    sequences = int(x.batch_sizes[0]) if isinstance(x, PackedSequence) else len(x)
    directions = 1 + core.bidirectional
    out = data
    for n in range(core.num_layers):
        if n and core.dropout and core.training:
            out = fused_dropout(out, core.dropout)
        weights = core.all_weights[n * directions : (n + 1) * directions]
        sides = [
            _FusedRecurrence.apply(out, w[0], w[1], core.hidden_size)  # type: ignore[no-untyped-call]
            for w in weights
        ]
        out = sides[0] if directions == 1 else torch.cat(sides, -1)
    many = core.num_layers * directions
    h = data.new_zeros(many, sequences, core.proj_size or core.hidden_size)
    end: Any = (h, h.new_zeros(many, sequences, core.hidden_size)) if core.mode == "LSTM" else h
    return (x._replace(data=out) if isinstance(x, PackedSequence) else out), end


class _FusedRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, inward: Tensor, around: Tensor, cells: int) -> Tensor:
        # The products of all steps, as they are counted: (gates, width) each.
        steps = x.reshape(-1, x.shape[-1])
        gates, width = around.shape
        states = x.new_empty(len(steps), width)
        _ = steps @ inward.t(), states @ around.t()
        ctx.save_for_backward(x, inward, around, states, x.new_empty(len(steps), gates + cells))
        return states.view(*x.shape[:-1], width)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, inward, around, states, _ = ctx.saved_tensors
        gates = states.new_empty(len(states), len(inward))
        _ = gates @ around
        d_x = (gates @ inward).view_as(x)
        return d_x, gates.t() @ x.reshape(-1, x.shape[-1]), gates.t() @ states, None
