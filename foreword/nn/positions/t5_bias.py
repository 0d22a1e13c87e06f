"""T5's relative bias: a learned scalar per head and bucket of distance, added to the scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Interval
from torch import Tensor

from foreword.nn.bias_table import BiasTable
from foreword.nn.positions._contract import PositionKind, PositionScheme
from foreword.settings.ranges import LARGEST, Count


@dataclass(frozen=True)
class T5Bias(PositionKind):
    """A learned bias per head and bucket of distance, shared by the layers of a stack.

    Small distances have a bucket each; greater ones share buckets of logarithmic width, and all
    from `max_distance` on the last.

    Attributes:
        buckets: number of buckets; half for each direction where the mask is not causal.
        max_distance: distances from here on share one bucket.

    Also called: bucketed.
    Reference: Raffel et al. 2020, section 2.1.
    """

    buckets: Annotated[int, Interval(ge=4, le=LARGEST)] = 32
    max_distance: Count = 128

    def build(
        self, width: int, heads: int, d_head: int, *, layers: int, is_causal: bool
    ) -> PositionScheme:
        """Return the module, with a table (buckets, heads)."""
        return T5BiasPositions(self, heads, is_causal=is_causal)


def bucket(distance: Tensor, settings: T5Bias, *, is_causal: bool) -> Tensor:
    """Return the bucket of each `distance` = key position - query position; any shape, int64."""
    buckets = settings.buckets
    if is_causal:
        offset, distance = torch.zeros_like(distance), (-distance).clamp(min=0)
    else:
        buckets //= 2
        offset, distance = (distance > 0).long() * buckets, distance.abs()
    exact = buckets // 2
    ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(
        settings.max_distance / exact
    )
    far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
    return offset + torch.where(distance < exact, distance, far)


class T5BiasPositions(PositionScheme):
    """A bias `table[bucket(key - query)]`, added to the scores."""

    def __init__(self, settings: T5Bias, heads: int, *, is_causal: bool) -> None:
        super().__init__()
        self.settings, self.is_causal = settings, is_causal
        self.table = BiasTable(settings.buckets, heads)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Return the bias, (queries,), (keys,) -> (heads, queries, keys)."""
        distance = keys[None, :] - queries[:, None]
        buckets = bucket(distance, self.settings, is_causal=self.is_causal)
        # Contiguous, since it is added to the scores of every layer.
        return torch.einsum("qkh->hqk", self.table(buckets)).contiguous()
