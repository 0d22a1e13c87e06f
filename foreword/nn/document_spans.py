"""The documents of packed rows, taken out of them and put back: for models that go step by step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class DocumentSpans:
    """Where the documents of a batch's rows stand, row by row; padding is no span.

    Attributes:
        rows: the row of each, (spans,) int64.
        starts: its first place, (spans,) int64.
        lengths: its tokens, (spans,) int64.
        documents: its number within the row, (spans,) int64.
    """

    rows: Tensor
    starts: Tensor
    lengths: Tensor
    documents: Tensor

    @classmethod
    def of(cls, documents: Tensor) -> DocumentSpans:
        """The spans of rows whose documents stand one behind the other.

        Args:
            documents: number of each place's document, -1 for padding; (batch, length) int64.
        """
        is_first = documents >= 0
        is_first[:, 1:] &= documents[:, 1:] != documents[:, :-1]
        rows, starts = is_first.nonzero(as_tuple=True)
        # A span ends where the next one of any number begins, padding too.
        changes = torch.ones_like(is_first)
        changes[:, 1:] = documents[:, 1:] != documents[:, :-1]
        edges = changes.flatten().nonzero()[:, 0]
        flat = rows * documents.shape[1] + starts
        next_token = torch.searchsorted(edges, flat, right=True)
        ends = torch.cat([edges, edges.new_tensor([documents.numel()])])[next_token]
        return cls(rows, starts, ends - flat, documents[rows, starts])

    def __len__(self) -> int:
        """Number of spans."""
        return len(self.rows)

    def is_there(self) -> Tensor:
        """Which steps each span has, (spans, longest) bool."""
        steps = torch.arange(int(self.lengths.max()), device=self.lengths.device)
        return steps < self.lengths[:, None]

    def cut(self, x: Tensor) -> Tensor:
        """(batch, length, width) -> (spans, longest, width), padded with whatever stands there."""
        steps = torch.arange(int(self.lengths.max()), device=x.device)
        at = (self.starts[:, None] + steps).clamp(max=x.shape[1] - 1)
        return x[self.rows[:, None], at]

    def join(self, states: Tensor, shape: tuple[int, int]) -> Tensor:
        """(spans, longest, width) -> (*shape, width), zeros where no span stands."""
        is_there = self.is_there()
        if int(self.lengths.sum()) == shape[0] * shape[1]:
            # Spans stand in the order of rows and places, so their tokens, joined, are the rows.
            return states[is_there].view(*shape, states.shape[2])
        out = states.new_zeros(*shape, states.shape[2])
        span, step = is_there.nonzero(as_tuple=True)
        return out.index_put((self.rows[span], self.starts[span] + step), states[span, step])

    def match(self, others: DocumentSpans) -> tuple[Tensor, Tensor]:
        """For each span the number of the one in `others` that is the same row's same document.

        Returns:
            The numbers, and whether there is such a one; (spans,) each.
        """
        most = 1 + max(int(side.documents.max()) for side in (self, others))
        wanted, keys = (side.rows * most + side.documents for side in (self, others))
        found = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
        return found, keys[found] == wanted
