"""A causal convolution of a few positions, channel by channel, that stays within documents."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class ShortConvolution(nn.Conv1d):
    """Each channel's weighted sum of its last `width` positions, without a bias.

    Its weights, (channels, 1, width), are drawn uniformly within 1 / sqrt(width) of 0.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__(channels, channels, width, groups=channels, bias=False)

    def forward(  # type: ignore[override]
        self, x: Tensor, recent: Tensor | None, documents: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Convolve a row.

        Args:
            x: (batch, length, channels).
            recent: the positions before, (batch, width - 1, channels); zeros if None.
            documents: number of each position's document, (batch, length); None if each row is
                one.

        Returns:
            (batch, length, channels), and the last width - 1 positions.
        """
        before = self.kernel_size[0] - 1
        if recent is None:
            recent = x.new_zeros(len(x), before, x.shape[2])
        extended = torch.cat([recent.to(x.dtype), x], 1)
        same = None
        if documents is not None:
            numbers = torch.cat([documents[:, :1].expand(-1, before), documents], 1)
            windows = numbers.unfold(1, before + 1, 1)  # (batch, length, width)
            same = windows == documents[..., None]
        weight = self.weight[:, 0].to(x.dtype)
        out: Tensor = _Convolution.apply(extended, weight, same)  # type: ignore[no-untyped-call]
        return out, extended[:, x.shape[1] :]


class _Convolution(torch.autograd.Function):
    """The sum of products, which keeps its input alone for backward, and not each product's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, same: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight, same)
        width = weight.shape[1]
        length = x.shape[1] - width + 1
        out = x[:, width - 1 :] * weight[:, -1]
        for n in range(width - 1):
            product = x[:, n : n + length] * weight[:, n]
            out += product if same is None else product * same[..., n, None]
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, same = ctx.saved_tensors
        d_x, d_weight = torch.zeros_like(x), []
        length = grads[0].shape[1]
        for n in range(weight.shape[1]):
            grad = grads[0] if same is None else grads[0] * same[..., n, None]
            d_x[:, n : n + length] += grad * weight[:, n]
            d_weight.append((grad * x[:, n : n + length]).sum((0, 1)))
        return d_x, torch.stack(d_weight, 1), None
