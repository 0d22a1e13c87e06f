"""Shaw's relative positions: a learned key for each distance, up to a greatest one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foreword.nn.position import AttentionPositions, PositionKind, PositionScheme
from foreword.ranges import Count


@dataclass(frozen=True)
class Shaw(PositionKind):
    """Each score is q_i (k_j + a_d), d = j - i clipped to `distance` on both sides.

    Attributes:
        distance: greater ones share the last vector of their side.

    Reference: Shaw et al. 2018, section 3.2.
    Differs from the paper: without the vectors added to the values; table 3 there finds no
    difference when they are left out. As there, layers have their own vectors and heads share them.
    """

    distance: Count = 16

    def build(
        self, width: int, heads: int, d_head: int, *, layers: int, is_causal: bool
    ) -> PositionScheme:
        """The module with its table of each layer."""
        return ShawPositions(self.distance, d_head, layers, is_causal=is_causal)


class ShawPositions(PositionScheme):
    """Adds `q_i table[clip(j - i)]`."""

    adds_scores = True

    def __init__(self, distance: int, d_head: int, layers: int, *, is_causal: bool) -> None:
        super().__init__()
        self.least, self.most = -distance, 0 if is_causal else distance
        self.count = self.most - self.least + 1
        self.table = nn.Embedding(layers * self.count, d_head)

    def scores(self, q: Tensor, k: Tensor, places: AttentionPositions, layer: int) -> Tensor | None:
        """(batch, heads, queries, keys)."""
        mine = self.table.weight[layer * self.count : (layer + 1) * self.count].to(q.dtype)
        by_distance = q @ mine.t()  # (batch, heads, queries, distances)
        keys = torch.arange(places.keys, device=q.device)
        distance = keys - places.queries[..., None]  # (queries, keys) or (batch, queries, keys)
        at = distance.clamp(self.least, self.most) - self.least
        at = at[:, None] if at.ndim == 3 else at
        return by_distance.gather(3, at.expand(*q.shape[:3], -1))
