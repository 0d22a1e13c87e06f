"""The head that tells pairs of texts: BERT's pooler and two classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.nn.precision import upcast
from foreword.types import Batch, Hidden, Loss


class PairHead(nn.Module):
    """The state of a pair's first token to scores of the two classes of pairs.

    Args:
        d_model: width of the states.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.pooler = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, 2)

    def forward(self, states: Tensor) -> Tensor:
        """(..., d_model) -> logits (..., 2)."""
        logits: Tensor = self.output(torch.tanh(self.pooler(states)))
        return logits

    def loss(self, hidden: Hidden, batch: Batch) -> Loss:
        """Cross-entropy where the batch has labels, and how many of them are right.

        Args:
            hidden: states (batch, length, d_model).
            batch: with labels.

        Returns:
            In `components`, under `accuracy`, the number that is right.
        """
        labels = batch.labels.flatten()
        where = (labels >= 0).nonzero().squeeze(1)  # (pairs,)
        labels = labels[where]
        logits = upcast(self(hidden.states.flatten(0, 1)[where]))
        total = F.cross_entropy(logits, labels, reduction="sum")
        weight = torch.full_like(total, len(where), requires_grad=False)
        right = (logits.argmax(-1) == labels).sum().float()
        return Loss(total, weight, {"accuracy": (right, weight)}, hidden.memory)
