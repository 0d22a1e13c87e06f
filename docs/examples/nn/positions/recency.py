"""A learned bias towards recent tokens, as an example of a position scheme in a plug-in."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foreword.nn.positions._contract import PositionKind, PositionScheme


@dataclass(frozen=True)
class Recency(PositionKind):
    """Add -r log(1 + distance) to the scaled scores, with one learned r for each head."""

    def build(
        self, width: int, heads: int, d_head: int, *, layers: int, is_causal: bool
    ) -> PositionScheme:
        """Return the module of a stack, with (heads,) parameters."""
        return RecencyPositions(heads)


class RecencyPositions(PositionScheme):
    """The learned bias."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.ones(heads))

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the bias between positions (queries,) and (keys,), (heads, queries, keys)."""
        distance = (queries[:, None] - keys[None, :]).abs()
        return -self.rate[:, None, None] * distance.float().log1p()
