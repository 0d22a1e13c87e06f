"""The head that predicts masked spans from the two states at their boundaries (SpanBERT)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foreword.nn.heads import TokenHead
from foreword.types import Batch, Hidden


class BoundaryHead(nn.Module):
    """Input of the output layer, from the states next to a span and a position in it.

    Two dense layers, each with GELU and LayerNorm; the output layer is the token head's.

    Args:
        d_model: width of the states.
        width: input width of the output layer.
        positions: positions in a span with an embedding; those beyond share the last one.
        d_position: width of these embeddings.
        norms: norms of both layers, over `width`.
        bias: whether the dense layers have biases.

    Reference: Joshi et al. 2020, section 3.2.
    """

    def __init__(
        self,
        d_model: int,
        width: int,
        positions: int,
        d_position: int,
        *,
        norms: tuple[nn.Module, nn.Module],
        bias: bool,
    ) -> None:
        super().__init__()
        self.position_embedding = nn.Embedding(positions, d_position)
        layers: list[nn.Module] = []
        for inputs, norm in zip((2 * d_model + d_position, width), norms, strict=True):
            layers += [nn.Linear(inputs, width, bias=bias), nn.GELU(), norm]
        self.layers = nn.Sequential(*layers)

    def forward(self, left: Tensor, right: Tensor, position: Tensor) -> Tensor:
        """Return the input of the output layer.

        Args:
            left: states just before the span, (predictions, d_model).
            right: states just after it, (predictions, d_model).
            position: position in the span, from 0; (predictions,) int64.

        Returns:
            (predictions, width).
        """
        last = self.position_embedding.num_embeddings - 1
        embedded = self.position_embedding(position.clamp(max=last)).to(left.dtype)
        output: Tensor = self.layers(torch.cat([left, right, embedded], dim=-1))
        return output

    def loss(self, head: TokenHead, hidden: Hidden, batch: Batch) -> Tensor:
        """Return the cross-entropy of all weighted tokens, where each run of them is a span.

        Args:
            head: token head, whose output layer it shares.
            hidden: the backbone's states.
            batch: with targets and weights; no span at the end of a row or of a document.

        Returns:
            The sum, in nats.
        """
        left, right = outside(batch.weights > 0)
        row, column = (batch.weights > 0).nonzero(as_tuple=True)  # (predictions,)
        before, after = left[row, column], right[row, column]
        states = hidden.states
        outputs = self(states[row, before], states[row, after], column - before - 1)
        targets, weights = batch.targets[row, column], batch.weights[row, column]
        total: Tensor = head(outputs, targets, weights, is_transformed=True)
        return total


def outside(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positions just outside the run of chosen positions around each one.

    Args:
        chosen: (batch, length) bool.

    Returns:
        Before and after, each (batch, length) int64; undefined where nothing is chosen.
    """
    length = chosen.shape[1]
    column = torch.arange(length, device=chosen.device).expand(chosen.shape)
    before = column.masked_fill(chosen, 0).cummax(1).values
    after = column.masked_fill(chosen, length - 1).flip(1).cummin(1).values.flip(1)
    return before, after
