"""Causal prediction of every second token, as an example of an objective in a plug-in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval
from torch import nn

from foreword.data.rng import RowRng
from foreword.nn.model import Backbone, Model
from foreword.objectives._contract import Objective, Prediction
from foreword.types import Batch, Example, Loss, NextToken, Rows, Tokens, Vocab


@dataclass(frozen=True)
class SkipCausal(Objective):
    """Predict each `every`-th token of a document from all tokens before it.

        ids      [ 7  8  9  4  2]
        inputs   [ 7  8  9  4  2]
        targets  [ .  9  .  2  .]          . is not scored

    With layout `decoder`.

    Attributes:
        every: 1 scores all tokens, 2 each second one (positions 0, 2, 4, ...).
    """

    every: Annotated[int, Interval(ge=1, le=1_000)] = 2

    @property
    def predicts(self) -> Prediction:
        """The next token."""
        return Prediction("next")

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the rows as they are, with weight 0 for padding and where a token is skipped."""
        is_scored = (rows.documents >= 0) & (rows.positions % self.every == 0)
        tokens = Tokens(rows.ids, rows.documents, rows.positions)
        return Example(None, tokens, is_scored.astype("float32"), parts=rows.parts_of(NextToken))

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """Return the model's output layer."""
        return nn.ModuleDict({"token": backbone.build_token_head()})

    def loss(self, model: Model, batch: Batch) -> Loss:
        """Return the cross-entropy of the next token, in nats."""
        return model.token_head.loss(model.backbone(batch), batch)
