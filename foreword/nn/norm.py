"""Normalisation: LayerNorm and RMSNorm, one of each name."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def build_norm(kind: str, d_model: int, eps: float, *, bias: bool) -> nn.Module:
    """`layer` (Ba et al. 2016) or `rms` (Zhang & Sennrich 2019, without mean and bias)."""
    if kind == "rms":
        return RmsNorm(d_model, eps)
    return nn.LayerNorm(d_model, eps=eps, bias=bias)


class RmsNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight; the mean is taken in float32."""

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> the same."""
        scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps)
        return x * scale.to(x.dtype) * self.weight.to(x.dtype)
