"""Normalisation: LayerNorm and RMSNorm."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.nn.precision import at_least_float32


def build_norm(kind: str, d_model: int, eps: float, *, bias: bool) -> nn.Module:
    """Return the norm of a kind.

    `layer` is LayerNorm (Ba et al. 2016); `rms` is RMSNorm (Zhang & Sennrich 2019), without mean
    and bias.
    """
    if kind == "rms":
        return RMSNorm(d_model, eps)
    return LayerNorm(d_model, eps, bias=bias)


class LayerNorm(nn.Module):
    """LayerNorm: (x - mean) / sqrt(variance + eps) * weight + bias, in the dtype of x.

    On CUDA autocast computes and returns float32, which would make the residual stream of
    post-norm models float32: twice the memory and traffic.
    """

    def __init__(self, d_model: int, eps: float, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Return x normalised, (..., d_model) -> (..., d_model)."""
        dtype = torch.promote_types(x.dtype, self.weight.dtype)  # sharded weights may be narrower
        weight, bias = (None if p is None else p.to(dtype) for p in (self.weight, self.bias))
        return F.layer_norm(x, self.weight.shape, weight, bias, self.eps).to(x.dtype)


class RMSNorm(nn.Module):
    """RMSNorm: x / sqrt(mean(x^2) + eps) * weight.

    The root is taken in float32 at least; its inverse is rounded to the dtype of x before it
    multiplies, which in bf16 scales a whole row by up to 0.2 % more or less.
    """

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Return x normalised, (..., d_model) -> (..., d_model)."""
        if not torch.is_grad_enabled():
            return rms_normalise(x, self.eps)[0] * self.weight.to(x.dtype)
        normalised: Tensor = _RmsNorm.apply(x, self.weight, self.eps)  # type: ignore[no-untyped-call]
        return normalised


def rms_normalise(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return x / sqrt(mean(x^2) + eps) in the dtype of x, and the factor of each row."""
    dtype = at_least_float32(x.dtype)
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype)
    scale = torch.rsqrt(norm.square_().div_(x.shape[-1]).add_(eps)).to(x.dtype)
    return x * scale, scale


class _RmsNorm(torch.autograd.Function):
    """RMSNorm in a few passes over x, fewer than autograd makes of the formula."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        normalised, scale = rms_normalise(x, eps)
        ctx.save_for_backward(normalised, scale, weight)
        return normalised * weight.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        normalised, scale, weight = ctx.saved_tensors
        product = (grads[0] * normalised).flatten(0, -2)  # (rows, d_model)
        d_weight = product.sum(0, dtype=at_least_float32(weight.dtype))
        weight = weight.to(grads[0].dtype)
        mean = torch.mv(product, weight).view_as(scale) / normalised.shape[-1]
        d_x = (grads[0] * weight).addcmul_(normalised, mean, value=-1).mul_(scale)
        return d_x, d_weight, None
