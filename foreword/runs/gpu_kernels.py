"""The tensors that a GPU's kernels would keep for the backward pass, without a GPU.

Within `gpu_kernels`, tensors say that they are on CUDA, and attention, dropout and recurrent layers
leave for backward what they would leave there: the outputs of one fused kernel instead of the
scores, masks of a byte instead of numbers. Their results are shapes without meaning, for fake
tensors (`foreword.runs.counted`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import register_flop_formula

from foreword.nn.attention import FlexMask, flex_masks
from foreword.nn.masks import Mask
from foreword.train.flops import attention_flops


@contextmanager
def gpu_kernels() -> Iterator[None]:
    """Make operations keep the tensors that kernels of CUDA would keep."""
    with flex_masks(_FusedMask), _Kernels():
        yield


class _Kernels(TorchFunctionMode):
    """Puts fused operations in place of those that CUDA fuses."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in GATES:
            return _recurrence(GATES[name], *args)
        return REPLACED.get(func, func)(*args, **options)


class _FusedMask(FlexMask):
    """A mask of which a fused kernel keeps nothing."""

    @classmethod
    def runs_on(cls, x: Tensor) -> bool:
        """Return True."""
        return True

    @classmethod
    def of(
        cls, mask: Mask, bias: Tensor | None, shape: tuple[int, int, int], like: Tensor, heads: int
    ) -> FlexMask:
        """Return one for any mask."""
        return cls(None)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """Return the shape of attention's output."""
        return _attention(q, k, v)


def _attention(q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> Tensor:
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


@register_flop_formula(torch.ops.foreword.fused_attention, get_raw=True)
def _fused_flops(*tensors: Tensor, **_: Any) -> int:
    """Return the FLOPs of forward and backward, which has no operation of its own here."""
    return 3 * attention_flops(*tensors)


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


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return x after dropout, having saved a mask of one byte for each element."""
    return torch.native_dropout(x, p, training)[0]


def _recurrence(gates: int, data: Tensor, *others: Any) -> tuple[Tensor, ...]:
    """Save for backward as a fused kernel does, and return the shapes of the results.

    Of each layer and step its input and output, the gates, the cell and the state, which cuDNN
    keeps in a reserve of about this size.

    Args:
        gates: the number of gates of a cell.
        data: the input, (batch, length, width), or packed.
        others: as torch's recurrent functions take them.
    """
    if not isinstance(others[2], bool):
        others = others[1:]  # without the batch sizes of packed sequences
    before, weights, _, layers, rate, is_training, is_bidirectional, *_ = others
    states = [before] if isinstance(before, Tensor) else list(before)
    directions = 1 + bool(is_bidirectional)
    size = len(weights) // (layers * directions)
    out = data
    for n in range(layers):
        if n and rate and is_training:
            out = _dropout(out, rate)
        cells = [weights[size * (n * directions + d) :][:2] for d in range(directions)]
        sides = [
            _FusedRecurrence.apply(out, inward, around, len(around) // gates)  # type: ignore[no-untyped-call]
            for inward, around in cells
        ]
        out = sides[0] if directions == 1 else torch.cat(sides, -1)
    return (out, *map(torch.zeros_like, states))


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


# torch's functions, and what takes their place; torch's recurrent layers, and the gates of a cell.
REPLACED: dict[Any, Callable[..., Any]] = {
    Tensor.is_cuda.__get__: lambda *_: True,  # type: ignore[attr-defined]
    Tensor.is_cpu.__get__: lambda *_: False,  # type: ignore[attr-defined]
    F.scaled_dot_product_attention: _attention,
    F.dropout: _dropout,
}
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
