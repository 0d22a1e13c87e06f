"""Documents of packed rows as separate sequences and back, for recurrent models.

Spans are cut by `Batch.documents`: positions tell neither padding from text, nor which source a
target belongs to where one source is empty.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class DocumentSpans:
    """The span of each document in a batch's rows, row by row; padding has none.

    Attributes:
        rows: row of each span, (spans,) int64.
        starts: its first position, (spans,) int64.
        lengths: its number of tokens, (spans,) int64.
        documents: its document's number within the row, (spans,) int64.
    """

    rows: Tensor
    starts: Tensor
    lengths: Tensor
    documents: Tensor

    @classmethod
    def of(cls, documents: Tensor) -> DocumentSpans:
        """Return the spans of rows whose documents are contiguous.

        Args:
            documents: each position's document, -1 for padding; (batch, length) int64.
        """
        is_first = documents >= 0
        is_first[:, 1:] &= documents[:, 1:] != documents[:, :-1]
        rows, starts = is_first.nonzero(as_tuple=True)
        # A span ends where the document's number changes, to padding too.
        changes = torch.ones_like(is_first)
        changes[:, 1:] = documents[:, 1:] != documents[:, :-1]
        edges = changes.flatten().nonzero()[:, 0]
        flat = rows * documents.shape[1] + starts
        next_edge = torch.searchsorted(edges, flat, right=True)
        ends = torch.cat([edges, edges.new_tensor([documents.numel()])])[next_edge]
        return cls(rows, starts, ends - flat, documents[rows, starts])

    def __len__(self) -> int:
        """Return the number of spans."""
        return len(self.rows)

    def is_token(self) -> Tensor:
        """Return which steps are in each span, (spans, longest) bool."""
        steps = torch.arange(int(self.lengths.max()), device=self.lengths.device)
        return steps < self.lengths[:, None]

    def cut(self, x: Tensor) -> Tensor:
        """Turn (batch, length, width) into (spans, longest, width); padding has any values."""
        steps = torch.arange(int(self.lengths.max()), device=x.device)
        at = (self.starts[:, None] + steps).clamp(max=x.shape[1] - 1)
        return x[self.rows[:, None], at]

    def join(self, states: Tensor, shape: tuple[int, int]) -> Tensor:
        """Turn (spans, longest, width) into (*shape, width), zeros outside of spans."""
        is_token = self.is_token()
        if int(self.lengths.sum()) == shape[0] * shape[1]:
            # Spans are in the order of rows and positions, so their tokens, joined, are the rows.
            return states[is_token].view(*shape, states.shape[2])
        out = states.new_zeros(*shape, states.shape[2])
        span, step = is_token.nonzero(as_tuple=True)
        return out.index_put((self.rows[span], self.starts[span] + step), states[span, step])

    def match(self, others: DocumentSpans) -> tuple[Tensor, Tensor]:
        """Return the index in `others` of each span's counterpart: same row, same document.

        Returns:
            The indices, and whether there is a counterpart; (spans,) each.
        """
        stride = 1 + max(int(side.documents.max()) for side in (self, others))
        keys, other_keys = (side.rows * stride + side.documents for side in (self, others))
        index = torch.searchsorted(other_keys, keys).clamp(max=len(other_keys) - 1)
        return index, other_keys[index] == keys
