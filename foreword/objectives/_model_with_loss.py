"""A model and its objective as one module: batch in, loss out."""

from __future__ import annotations

from torch import nn

from foreword.nn.model import Model
from foreword.objectives._contract import Objective
from foreword.types import Batch, Loss


class ModelWithLoss(nn.Module):
    """The module that a training step calls and DDP may wrap: `forward(batch) -> Loss`.

    Args:
        model: backbone and heads.
        objective: what the model predicts.
    """

    def __init__(self, model: Model, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: Batch) -> Loss:
        """Return the loss of a batch: a sum in nats and a count."""
        return self.objective.loss(self.model, batch)
