"""The softmax over the vocabulary, fused with the output layer.

Logits of every position at once would be (predictions, vocab), in float32 the largest tensor of a
run by far. Here they exist for a slice of predictions at a time, in the compute dtype, and are
turned into gradients while they are in the processor's cache. The backward pass only scales them.

In training a prediction's loss is at most about 85 nats (a probability of 1e-37), where its
gradient is that of the unbounded loss; without gradients it is unbounded.

In bf16 the target's probability is rounded to 8 bits, an unbiased error of about 0.002 nats;
held-out losses take the softmax in float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from foreword.nn.precision import at_least_float32, compute_dtype, upcast

# Number of logits that exist at once: a large cache on the CPU, enough to fill a GPU.
SLICE = {"cpu": 1 << 24, "cuda": 1 << 28}
# Rows of logits are padded to multiples of this: on a GPU matrix products are several times slower
# if rows do not begin at multiples of 16 bytes, as with the 30,522 tokens of BERT.
ALIGNED = {"cuda": 64}
PIECE = 1 << 19  # numbers added at once into a gradient of another dtype, on the CPU


def cross_entropy(
    states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor
) -> Tensor:
    """Return the weighted sum of -log softmax(states weight' + bias)[target], in nats.

    Args:
        states: (predictions, d_model).
        weight: the output layer, (vocab, d_model).
        bias: (vocab,) or None.
        targets: (predictions,) int64.
        weights: weight of each prediction, (predictions,) float32.

    Returns:
        A scalar, float32 at least.
    """
    kind = states.device.type
    dtype = compute_dtype(states)
    with torch.autocast(kind, enabled=False):
        total: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
            states.to(dtype), weight, bias, targets, weights, torch.is_grad_enabled()
        )
    return total


def _add(total: Tensor, step: Tensor) -> Tensor:
    """Add step to total in place, both (vocab, d_model).

    On the CPU torch first copies all of step to the dtype of total; in pieces, the copy stays in
    the cache.
    """
    rows = PIECE // total.shape[1] + 1 if total.is_cpu else len(total)
    for into, piece in zip(torch.split(total, rows), torch.split(step, rows), strict=True):
        into.add_(piece)
    return total


def _rows(predictions: int, maximum: int) -> int:
    """Return the rows of a slice, at most `maximum`, for few slices of about equal size."""
    slices = -(-predictions // max(1, maximum))
    return max(1, -(-predictions // max(1, slices)))


def _aligned(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the output layer in a dtype, padded with rows of zeros to a multiple of `ALIGNED`."""
    missing = -len(weight) % ALIGNED.get(weight.device.type, 1)
    if not missing:
        return weight.to(dtype)
    padded = weight.new_zeros(len(weight) + missing, weight.shape[1], dtype=dtype)
    padded[: len(weight)] = weight
    return padded


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        weights: Tensor,
        with_grad: bool,
    ) -> Tensor:
        vocab = len(weight)
        low = _aligned(weight, states.dtype)  # (columns, d_model); those beyond vocab are masked
        shift = None if bias is None else F.pad(bias.to(states.dtype), (0, len(low) - vocab))
        total = torch.zeros((), device=states.device, dtype=at_least_float32(states.dtype))
        d_states = torch.empty_like(states) if with_grad else None
        d_weight = d_bias = None
        kind = "cuda" if states.is_cuda else states.device.type
        rows = _rows(len(states), SLICE.get(kind, 1 << 26) // len(low))
        for start in range(0, len(states), rows):
            part = slice(start, start + rows)
            # Logits of the slice.
            x, target, scale = states[part], targets[part, None], weights[part, None]
            logits = x @ low.t() if shift is None else torch.addmm(shift, x, low.t())
            if len(low) > vocab:
                logits[:, vocab:] = float("-inf")
            # Without gradients: the loss alone.
            if d_states is None:
                nats = -torch.log_softmax(upcast(logits), -1).gather(1, target)
                total += (nats * scale).sum()
                continue
            # Probabilities; in place on the CPU, whose kernel reads a row before it writes it and
            # sums in float32.
            out = logits if logits.device.type == "cpu" else None
            p = torch.softmax(logits, -1, out=out)  # (rows, columns)
            chosen = p.gather(1, target)
            nats = -upcast(chosen).clamp(min=1e-37).log()
            total += (nats * scale).sum()
            # The gradient of the logits is p - 1 at the target and p elsewhere, times the weight.
            rows_of_p = torch.arange(len(p), device=p.device)
            p.index_put_((rows_of_p, target[:, 0]), chosen[:, 0] - 1)  # scatter_ would copy p
            scale = scale.to(x.dtype)
            torch.mul(p @ low, scale, out=d_states[part])
            step = (p.t() @ (x * scale))[:vocab]
            d_weight = upcast(step) if d_weight is None else _add(d_weight, step)
            if bias is not None:
                step = (scale.t() @ p)[0, :vocab]
                d_bias = upcast(step) if d_bias is None else d_bias.add_(step)
        ctx.save_for_backward(d_states, d_weight, d_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        scale = grads[0]
        d_states, d_weight, d_bias = (
            None if t is None else t.mul_(scale) for t in ctx.saved_tensors
        )
        return d_states, d_weight, d_bias, None, None, None
