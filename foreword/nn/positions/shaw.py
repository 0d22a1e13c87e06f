"""Shaw's relative positions: a learned key for each distance, up to a maximum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from foreword.nn.positions._contract import AttentionPositions, PositionKind, PositionScheme
from foreword.settings.ranges import Count


@dataclass(frozen=True)
class Shaw(PositionKind):
    """Relative keys: each score is q_i (k_j + a_d), d = j - i clipped to `distance`, either side.

    Attributes:
        distance: maximum distance; greater ones share its vector, one for each side.

    Reference: Shaw et al. 2018, section 3.2.
    Differs from the paper: without the vectors added to the values; in its table 3 leaving
    them out makes no difference. As there, layers have their own vectors and heads share them.
    """

    distance: Count = 16

    def build(
        self, width: int, heads: int, d_head: int, *, layers: int, is_causal: bool
    ) -> PositionScheme:
        """Return the module, with a table for each layer."""
        return ShawPositions(self.distance, d_head, layers, is_causal=is_causal)


class ShawPositions(PositionScheme):
    """Scores `q_i table[clip(j - i)]`, added before scaling."""

    adds_scores = True

    def __init__(self, distance: int, d_head: int, layers: int, *, is_causal: bool) -> None:
        super().__init__()
        self.min_distance, self.max_distance = -distance, 0 if is_causal else distance
        self.count = self.max_distance - self.min_distance + 1
        self.table = nn.Embedding(layers * self.count, d_head)

    def scores(
        self, q: Tensor, k: Tensor, positions: AttentionPositions, layer: int
    ) -> Tensor | None:
        """Return (batch, heads, queries, keys)."""
        first = layer * self.count
        rows = torch.arange(first, first + self.count, device=q.device)
        table = cast(Tensor, self.table(rows)).to(q.dtype)
        by_distance = q @ table.t()  # (batch, heads, queries, distances)
        keys = torch.arange(positions.keys, device=q.device)
        distance = keys - positions.queries[..., None]  # (queries, keys) or (batch, queries, keys)
        at = distance.clamp(self.min_distance, self.max_distance) - self.min_distance
        at = at[:, None] if at.ndim == 3 else at
        return by_distance.gather(3, at.expand(*q.shape[:3], -1))
