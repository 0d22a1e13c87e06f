"""The documents of packed rows, taken out of them and put back: for models that go step by step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pieces:
    """Where the documents of a batch's rows stand, row by row; padding is no piece.

    Attributes:
        rows: the row of each, (pieces,) int64.
        starts: its first place, (pieces,) int64.
        lengths: its tokens, (pieces,) int64.
        documents: its number within the row, (pieces,) int64.
    """

    rows: Tensor
    starts: Tensor
    lengths: Tensor
    documents: Tensor

    @classmethod
    def of(cls, documents: Tensor) -> Pieces:
        """The pieces of rows whose documents stand one behind the other.

        Args:
            documents: number of each place's document, -1 for padding; (batch, length) int64.
        """
        is_first = documents >= 0
        is_first[:, 1:] &= documents[:, 1:] != documents[:, :-1]
        rows, starts = is_first.nonzero(as_tuple=True)
        # A piece ends where the next one of any number begins, padding too.
        changes = torch.ones_like(is_first)
        changes[:, 1:] = documents[:, 1:] != documents[:, :-1]
        edges = changes.flatten().nonzero()[:, 0]
        flat = rows * documents.shape[1] + starts
        next_token = torch.searchsorted(edges, flat, right=True)
        ends = torch.cat([edges, edges.new_tensor([documents.numel()])])[next_token]
        return cls(rows, starts, ends - flat, documents[rows, starts])

    def __len__(self) -> int:
        """Number of pieces."""
        return len(self.rows)

    def is_there(self) -> Tensor:
        """Which steps each piece has, (pieces, longest) bool."""
        steps = torch.arange(int(self.lengths.max()), device=self.lengths.device)
        return steps < self.lengths[:, None]

    def cut(self, x: Tensor) -> Tensor:
        """(batch, length, width) -> (pieces, longest, width), padded with whatever stands there."""
        steps = torch.arange(int(self.lengths.max()), device=x.device)
        at = (self.starts[:, None] + steps).clamp(max=x.shape[1] - 1)
        return x[self.rows[:, None], at]

    def join(self, states: Tensor, shape: tuple[int, int]) -> Tensor:
        """(pieces, longest, width) -> (*shape, width), zeros where no piece stands."""
        is_there = self.is_there()
        if int(self.lengths.sum()) == shape[0] * shape[1]:
            # Pieces stand in the order of rows and places, so their tokens, joined, are the rows.
            return states[is_there].view(*shape, states.shape[2])
        out = states.new_zeros(*shape, states.shape[2])
        piece, step = is_there.nonzero(as_tuple=True)
        return out.index_put((self.rows[piece], self.starts[piece] + step), states[piece, step])

    def match(self, others: Pieces) -> tuple[Tensor, Tensor]:
        """For each piece the number of the one in `others` that is the same row's same document.

        Returns:
            The numbers, and whether there is such a one; (pieces,) each.
        """
        most = 1 + max(int(side.documents.max()) for side in (self, others))
        wanted, keys = (side.rows * most + side.documents for side in (self, others))
        found = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
        return found, keys[found] == wanted
