"""What a position scheme may do; a kind in `nn/positions/` does one of the four."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from foreword.ranges import Ranged


@dataclass(frozen=True)
class AttentionPositions:
    """Where the queries of an attention stand, and what else is known of where things are.

    Keys stand at 0, 1, 2, ... in the row, those that are remembered first.

    Attributes:
        queries: place of each query, (queries,) int64, and then these are the last keys; or
            (batch, queries), anywhere.
        keys: number of keys.
        segments: of each key, (batch, keys) int64; or None where all are 0.
    """

    queries: Tensor
    keys: int
    segments: Tensor | None = None

    @classmethod
    def consecutive(cls, start: int, length: int, device: torch.device) -> AttentionPositions:
        """`length` queries after `start` keys that are remembered."""
        return cls(torch.arange(start, start + length, device=device), start + length)

    def compare(self, of_keys: Tensor) -> Tensor:
        """Where query and key are alike in what is given of each key (batch, keys).

        Returns:
            (batch, 1, queries, keys) bool.
        """
        at = self.queries.expand(len(of_keys), -1)
        return (of_keys.gather(1, at)[:, :, None] == of_keys[:, None, :])[:, None]


class PositionScheme(nn.Module, ABC):
    """Where a token stands, told to the model by addition, by rotation, or by what scores get.

    Rotation, bias and scores go by the place in the row. Documents lie in one piece in their row,
    so within a document differences of places are differences of positions, and one table serves
    every row of the batch.

    Attributes:
        adds_scores: whether `scores` gives anything; attention then holds its scores in memory.
    """

    adds_scores: ClassVar[bool] = False

    def embed(self, positions: Tensor) -> Tensor | None:
        """What to add to the embeddings at `positions` (batch, length): (..., width) or None."""
        return None

    def rotate(self, x: Tensor, places: Tensor) -> Tensor:
        """Queries or keys (batch, heads, length, d_head); places (length,) or (batch, length)."""
        return x

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """What to add to the scaled scores between places (queries,) and (keys,), in all layers.

        Returns:
            (heads, queries, keys) float, or None.
        """
        return None

    def scores(self, q: Tensor, k: Tensor, places: AttentionPositions, layer: int) -> Tensor | None:
        """What to add to the scores before they are scaled, where it depends on what is there.

        Args:
            q: (batch, heads, queries, d_head).
            k: (batch, heads, keys, d_head).
            places: of the queries.
            layer: number of the block in its stack.

        Returns:
            (batch, heads, queries, keys) float, or None.
        """
        return None


class PositionKind(Ranged, ABC):
    """The settings of a position scheme: a kind in `nn/positions/`."""

    @property
    def limit(self) -> int | None:
        """The greatest length it allows, or None."""
        return None

    @property
    def segments(self) -> bool:
        """Whether its scores tell one segment from another."""
        return False

    @abstractmethod
    def build(
        self, width: int, heads: int, d_head: int, *, layers: int, is_causal: bool
    ) -> PositionScheme:
        """The module of a stack.

        Args:
            width: of the embeddings.
            heads: attention heads.
            d_head: width of a head.
            layers: blocks of the stack.
            is_causal: whether only earlier keys are seen.
        """
