"""Learned absolute positions: a vector per position, added to the embedding (BERT, GPT)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from foreword.nn.positions._contract import PositionKind, PositionScheme
from foreword.settings.ranges import Count


@dataclass(frozen=True)
class Learned(PositionKind):
    """A learned vector per position.

    Attributes:
        length: number of positions, the maximum length of a text.

    Also called: absolute, learned embedding.
    Reference: Gehring et al. 2017, section 3.1; Devlin et al. 2019, section 3.
    """

    is_absolute = True
    length: Count = 512

    @property
    def limit(self) -> int | None:
        """The length of the table."""
        return self.length

    def build(
        self, width: int, heads: int, d_head: int, *, layers: int, is_causal: bool
    ) -> PositionScheme:
        """Return the module, with a table (length, width)."""
        return LearnedPositions(self.length, width)


class LearnedPositions(PositionScheme):
    """A table of vectors, added to the embeddings."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(length, width)

    def embed(self, positions: Tensor) -> Tensor | None:
        """Return the vectors, (batch, length) -> (batch, length, width)."""
        vectors: Tensor = self.table(positions)
        return vectors
