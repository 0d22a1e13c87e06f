"""The head that classifies pairs of texts: BERT's pooler and two classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.nn.precision import upcast
from foreword.types import Batch, Hidden, Loss, PairLabels


class PairHead(nn.Module):
    """Scores of the two classes of pairs, from the state of a pair's first token.

    Args:
        d_model: width of the states.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.pooler = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, 2)

    def forward(self, states: Tensor) -> Tensor:
        """Return logits, (..., d_model) -> (..., 2)."""
        logits: Tensor = self.output(torch.tanh(self.pooler(states)))
        return logits

    def loss(self, hidden: Hidden, batch: Batch) -> Loss:
        """Return the cross-entropy of the batch's labels, and how many are predicted correctly.

        Args:
            hidden: states (batch, length, d_model).
            batch: with `PairLabels`.

        Returns:
            The loss; its component `accuracy` is the number of correct predictions.
        """
        labels = batch.require(PairLabels).labels.flatten()
        where = (labels >= 0).nonzero().squeeze(1)  # (pairs,)
        labels = labels[where]
        logits = upcast(self(hidden.states.flatten(0, 1)[where]))
        total = F.cross_entropy(logits, labels, reduction="sum")
        count = torch.full_like(total, len(where), requires_grad=False)
        correct = (logits.argmax(-1) == labels).sum().float()
        return Loss(total, count, {"accuracy": (correct, count)}, hidden.memory)
