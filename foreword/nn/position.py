"""What a position scheme may do; a kind in `nn/positions/` does one of the three."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from torch import Tensor, nn


class PositionScheme(nn.Module, ABC):
    """Where a token stands, told to the model by addition, by rotation, or by a bias on scores.

    Rotation and bias go by the place in the row. Documents lie in one piece in their row, so
    within a document differences of places are differences of positions, and one table serves
    every row of the batch.
    """

    def embed(self, positions: Tensor) -> Tensor | None:
        """What to add to the embeddings at `positions` (batch, length): (..., d_model) or None."""
        return None

    def rotate(self, x: Tensor, start: int) -> Tensor:
        """Queries or keys (batch, heads, length, d_head), the first standing at place `start`."""
        return x

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """What to add to attention scores between places (queries,) and (keys,).

        Returns:
            (heads, queries, keys) float, or None.
        """
        return None


class Position(Protocol):
    """The settings of a position scheme: a kind in `nn/positions/`."""

    @property
    @abstractmethod
    def limit(self) -> int | None:
        """The greatest length it allows, or None."""

    @abstractmethod
    def build(self, d_model: int, heads: int, d_head: int, *, is_causal: bool) -> PositionScheme:
        """The module."""
