"""Distances in the row and differences in depth, as an example of positions that see structure."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foreword.nn.positions._contract import AttentionPositions, PositionKind, PositionScheme
from foreword.settings.ranges import Count


@dataclass(frozen=True)
class Structural(PositionKind):
    """Each score is q_i (k_j + a_d + b_e): d = j - i, e the difference of both words' depths.

    With packing `dependency_depth`, beside this file, whose segments are depths.

    Attributes:
        distance: maximum distance in the row; greater ones share its vector.
        depth: maximum difference in depth.

    Reference: Wang et al. 2019, section 3.2, on Shaw et al. 2018.
    Differs from the paper: the difference of depths in place of the length of the path between
    two words; without the vectors added to the values.
    """

    distance: Count = 16
    depth: Count = 8

    @property
    def segments(self) -> bool:
        """Whether its scores depend on segments."""
        return True

    def build(
        self, width: int, heads: int, d_head: int, *, layers: int, is_causal: bool
    ) -> PositionScheme:
        """Return the module, with two tables for each layer."""
        return StructuralPositions(self.distance, self.depth, d_head, layers)


class StructuralPositions(PositionScheme):
    """Scores `q_i (a[clip(j - i)] + b[clip(depth_j - depth_i)])`, added before scaling."""

    adds_scores = True

    def __init__(self, distance: int, depth: int, d_head: int, layers: int) -> None:
        super().__init__()
        self.distance, self.depth = distance, depth
        self.by_distance = nn.Embedding(layers * (2 * distance + 1), d_head)
        self.by_depth = nn.Embedding(layers * (2 * depth + 1), d_head)

    def scores(self, q: Tensor, k: Tensor, positions: AttentionPositions, layer: int) -> Tensor:
        """Return (batch, heads, queries, keys)."""
        at = positions.queries.expand(len(q), -1)  # (batch, queries)
        keys = torch.arange(positions.keys, device=q.device)
        scores = _scores(q, self.by_distance, layer, keys - at[..., None], self.distance)
        depths = positions.segments
        if depths is None:
            depths = torch.zeros_like(keys).expand(len(q), -1)
        difference = depths[:, None, :] - depths.gather(1, at)[..., None]
        return scores + _scores(q, self.by_depth, layer, difference, self.depth)


def _scores(q: Tensor, table: nn.Embedding, layer: int, difference: Tensor, most: int) -> Tensor:
    """Return the products of queries with the vectors of differences (batch, queries, keys)."""
    count = 2 * most + 1
    vectors = table.weight[layer * count : (layer + 1) * count].to(q.dtype)
    by_difference = q @ vectors.t()  # (batch, heads, queries, differences)
    at = (difference.clamp(-most, most) + most)[:, None]
    return by_difference.gather(3, at.expand(*q.shape[:3], -1))
