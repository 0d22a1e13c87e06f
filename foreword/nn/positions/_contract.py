"""The contract of position schemes: a kind in `nn/positions/` implements one of four methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from foreword.settings.ranges import Ranged


@dataclass(frozen=True)
class AttentionPositions:
    """The positions of queries and keys in one attention.

    Keys are at positions 0, 1, 2, ... of the row, those of the cache or memory first.

    Attributes:
        queries: position of each query: (queries,) int64 if they are the last keys; else (batch,
            queries), anywhere.
        keys: number of keys.
        segments: segment of each key, (batch, keys) int64; or None where all are 0.
    """

    queries: Tensor
    keys: int
    segments: Tensor | None = None

    @classmethod
    def consecutive(cls, start: int, length: int, device: torch.device) -> AttentionPositions:
        """Return the positions of `length` queries after `start` keys of a cache or memory."""
        return cls(torch.arange(start, start + length, device=device), start + length)

    def compare(self, key_values: Tensor) -> Tensor:
        """Return where query and key have equal values, given those of the keys (batch, keys).

        Returns:
            (batch, 1, queries, keys) bool.
        """
        at = self.queries.expand(key_values.shape[0], -1)
        return (key_values.gather(1, at)[:, :, None] == key_values[:, None, :])[:, None]


class PositionScheme(nn.Module, ABC):
    """The way a token's position enters the model: added embedding, rotation, bias or scores.

    Rotation, bias and scores use the index in the row. Documents are contiguous in their row, so
    within a document differences of indices are differences of positions, and one table serves
    every row of the batch.

    Attributes:
        adds_scores: whether `scores` returns anything; attention then holds all scores in memory.
    """

    adds_scores: ClassVar[bool] = False

    def embed(self, positions: Tensor) -> Tensor | None:
        """Return the vectors to add at `positions` (batch, length): (..., width), or None."""
        return None

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return queries or keys, rotated by their positions.

        Args:
            x: (batch, heads, length, d_head).
            positions: (length,) or (batch, length).
        """
        return x

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Return the bias of the scaled scores between positions (queries,) and (keys,).

        It is the same in all layers.

        Returns:
            (heads, queries, keys) float, or None.
        """
        return None

    def scores(
        self, q: Tensor, k: Tensor, positions: AttentionPositions, layer: int
    ) -> Tensor | None:
        """Return content-dependent position scores, added before the scores are scaled.

        Args:
            q: (batch, heads, queries, d_head).
            k: (batch, heads, keys, d_head).
            positions: positions of queries and keys.
            layer: index of the block in its stack.

        Returns:
            (batch, heads, queries, keys) float, or None.
        """
        return None


class PositionKind(Ranged, ABC):
    """The settings of a position scheme: a kind in `nn/positions/`.

    Attributes:
        is_absolute: whether its scheme adds vectors by `embed`. These number each row from 0, so
            nothing can stand before a row: such a scheme goes with no memory.
    """

    is_absolute: ClassVar[bool] = False

    @property
    def limit(self) -> int | None:
        """The maximum length, or None."""
        return None

    @property
    def segments(self) -> bool:
        """Whether its scores depend on segments."""
        return False

    @abstractmethod
    def build(
        self, width: int, heads: int, d_head: int, *, layers: int, is_causal: bool
    ) -> PositionScheme:
        """Return the module of a stack.

        Args:
            width: width of the embeddings.
            heads: attention heads.
            d_head: width of a head.
            layers: blocks of the stack.
            is_causal: whether only earlier keys are seen.
        """
