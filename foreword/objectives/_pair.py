"""The base of objectives that classify pairs of texts."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import cast

import numpy as np
from torch import nn

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.nn.model import Backbone, Model, neural
from foreword.nn.pair_head import PairHead
from foreword.objectives._contract import Prediction, Term
from foreword.settings import kinds
from foreword.types import Array, Batch, Example, Hidden, Loss, PairLabels, Rows, Tokens, Vocab


class PairObjective(Term):
    """A classifier of pairs of texts, from the state of each pair's first token."""

    @abstractmethod
    def relabel(self, rows: Rows, rng: RowRng) -> Rows:
        """Return the rows rearranged for this objective, with its classes as labels."""

    @property
    def predicts(self) -> Prediction:
        return Prediction("in_place", tokens=False, pairs=True)

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the rows with their labels; no token is predicted.

        Raises:
            UserError: the packing makes no pairs.
        """
        rows = self.relabel(rows, rng)
        return Example(
            source=Tokens(rows.ids, rows.documents, rows.positions, rows.segments),
            target=Tokens(rows.ids, rows.documents, rows.positions),
            weights=np.zeros(rows.ids.shape, dtype=np.float32),
            is_aligned=True,
            parts=rows.parts_of(PairLabels),
        )

    def pairs(self, rows: Rows) -> tuple[Array, Array]:
        """Return segments and labels of the rows, (batch, length) int64 each.

        Raises:
            UserError: the packing makes no pairs.
        """
        pairs = rows.part(PairLabels)
        if rows.segments is None or pairs is None:
            raise UserError(
                f"objective: {kinds.name_of(self)} classifies pairs of texts, and this packing "
                "makes none; use packing.kind = 'pairs'"
            )
        return rows.segments, pairs.labels

    def count(self, batch: Batch) -> float:
        """Return the number of labelled pairs in a batch."""
        return float((batch.require(PairLabels).labels >= 0).sum())

    def chance_loss(self, vocab: int) -> float:
        del vocab  # there are two classes
        return math.log(2)

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """Return BERT's pooler with two classes."""
        return nn.ModuleDict({"pair": PairHead(neural(backbone).settings.d_model)})

    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """Return the cross-entropy of the pairs' classes, in nats."""
        return cast(PairHead, model.heads["pair"]).loss(hidden, batch)
