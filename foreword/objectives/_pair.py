"""What objectives that ask about pairs of texts have in common."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import cast

import numpy as np
from torch import nn

from foreword import kinds
from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.nn.model import Backbone, Model
from foreword.nn.pair_head import PairHead
from foreword.objectives._contract import Prediction, Term
from foreword.types import Array, Batch, Example, Hidden, Loss, Rows, Tokens, Vocab


class PairObjective(Term):
    """Asks one thing about each pair of texts, of the state of its first token."""

    @abstractmethod
    def relabel(self, rows: Rows, rng: RowRng) -> Rows:
        """The rows as this objective wants them read, with the classes that it asks for."""

    @property
    def predicts(self) -> Prediction:
        """The class of each pair."""
        return "in_place"

    @property
    def predicts_tokens(self) -> bool:
        """Whether there is a head that predicts tokens: there is none."""
        return False

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """The rows with their labels; no token is predicted.

        Raises:
            UserError: the packing makes no pairs.
        """
        rows = self.relabel(rows, rng)
        return Example(
            source=Tokens(rows.ids, rows.documents, rows.positions, rows.segments),
            target=Tokens(rows.ids, rows.documents, rows.positions),
            weights=np.zeros(rows.ids.shape, dtype=np.float32),
            is_aligned=True,
            labels=rows.labels,
        )

    def pairs(self, rows: Rows) -> tuple[Array, Array]:
        """Segments and labels of the rows, (batch, length) int64 each.

        Raises:
            UserError: the packing makes no pairs.
        """
        if rows.segments is None or rows.labels is None:
            raise UserError(
                f"objective: {kinds.name_of(self)} asks about pairs of texts, and this packing "
                "makes none; use packing.kind = 'pairs'"
            )
        return rows.segments, rows.labels

    def count(self, batch: Batch) -> float:
        """How many pairs of a batch are asked about."""
        return float((batch.labels >= 0).sum())

    def chance_loss(self, vocab: int) -> float:
        """The loss of one who guesses, in nats."""
        del vocab  # there are two classes
        return math.log(2)

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """BERT's pooler and two classes."""
        return nn.ModuleDict({"pair": PairHead(backbone.settings.d_model)})

    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """Cross-entropy of the pairs' classes, in nats."""
        return cast(PairHead, model.heads["pair"]).loss(hidden, batch)
