"""A linear map with a trained change of low rank.

The map computes its two parts apart: torch's parametrization would form the gradient of the whole
W + B A in each step, at the cost of full fine-tuning.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.nn.dropout import Dropout


class LowRankLinear(nn.Linear):
    """W x + b + scale B A dropout(x), with W and b those of a given map.

    A begins uniform within 1 / sqrt(inputs) of 0, B at 0, so that at first it is the given map.

    Args:
        linear: the map; its parameters keep their names.
        rank: rank of B A.
        scale: factor of B A.
        dropout: share of the change's inputs dropped in training.
        random: generator of A's first values.
    """

    def __init__(
        self, linear: nn.Linear, rank: int, scale: float, dropout: float, random: torch.Generator
    ) -> None:
        inputs, outputs = linear.in_features, linear.out_features
        super().__init__(inputs, outputs, bias=linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        uniform = torch.rand(rank, inputs, generator=random)
        self.lora_a = nn.Parameter((2 * uniform - 1) * inputs**-0.5)
        self.lora_b = nn.Parameter(torch.zeros(outputs, rank))
        self.scale = scale
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., inputs) -> (..., outputs); in evaluation mode exactly as by `merged`."""
        if not self.training:
            return F.linear(x, self._sum(), self.bias)
        change = F.linear(F.linear(self.dropout(x), self.lora_a), self.lora_b)
        return super().forward(x) + self.scale * change

    def merged(self) -> nn.Linear:
        """Return the sum of both maps as one map."""
        has_bias = self.bias is not None
        linear = nn.Linear(self.in_features, self.out_features, bias=has_bias, device="meta")
        linear.weight, linear.bias = nn.Parameter(self._sum().detach()), self.bias
        return linear

    def _sum(self) -> Tensor:
        with torch.autocast(self.weight.device.type, enabled=False):
            return self.weight + self.scale * (self.lora_b @ self.lora_a)
