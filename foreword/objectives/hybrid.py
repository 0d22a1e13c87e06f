"""Causal and masked language modelling by one model and one head, row by row (GPT-BERT)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from foreword.data.rng import RowRng
from foreword.nn.model import Backbone, Model
from foreword.objectives._contract import Objective, Prediction
from foreword.objectives._masking import in_place, require_shares
from foreword.objectives.masked import Masked
from foreword.settings.ranges import PositiveShare, Share
from foreword.types import Batch, CausalRows, Example, Loss, NextToken, Rows, Vocab


@dataclass(frozen=True)
class Hybrid(Objective):
    """Some rows are predicted from left to right, the others have masked tokens to predict.

        ids      [ 7  8  9  4  2]          [MASK] is 3
        inputs   [ 7  8  3  4  2]          a masked row
        targets  [ .  9  .  .  .]          . is not scored

    With layout `hybrid`. Every token is predicted at the position before it, also in a masked row,
    so that causal and masked rows have one head and the model can be used both ways: to generate
    and score text, and to fill blanks and read text from both sides. A document's first token is
    not predicted.

    The loss is the mean over all predictions. A causal row predicts all of its tokens, a masked one
    `rate` of them, so with the defaults a third of the predictions are causal. `Loss.components`
    holds the mean of either kind.

    Attributes:
        causal: share of rows that are causal.
        rate: share of a masked row's ordinary tokens that is predicted.
        mask: share of these that becomes [MASK].
        random: share of these that becomes a random ordinary token; the rest stays unchanged.

    Also called: GPT-BERT, masked next-token prediction, MNTP.
    Reference: Charpentier and Samuel 2024, "GPT or BERT: why not both?", whose causal and masked
    rows are 1 to 15.
    Differs from the paper: single tokens are masked, not spans of up to 3; `rate` is constant
    instead of falling from 0.3 to 0.15; each prediction has the same weight, as with their option
    `token_weighted_loss`, instead of each row.
    """

    causal: Share = 0.0625
    rate: PositiveShare = 0.15
    mask: Share = 0.8
    random: Share = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_shares(self.mask, self.random)

    @property
    def predicts(self) -> Prediction:
        return Prediction("next_and_in_place")

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the rows, some of them masked, and which are causal (`CausalRows`)."""
        cloze = Masked(self.rate, self.mask, self.random).corrupt(rows, rng, vocab)
        assert cloze.source is not None
        is_causal = rng.uniform(1)[:, 0] < self.causal  # (batch,)
        inputs = np.where(is_causal[:, None], rows.ids, cloze.source.ids)
        chosen = np.where(is_causal[:, None], rows.documents >= 0, cloze.weights > 0)
        example = in_place(rows, inputs, chosen).with_part(CausalRows(is_causal))
        after_row = rows.part(NextToken)
        if after_row is None:
            return example
        return example.with_part(NextToken(np.where(is_causal, after_row.ids, -1)))

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """Return the model's output layer."""
        return nn.ModuleDict({"token": backbone.build_token_head()})

    def loss(self, model: Model, batch: Batch) -> Loss:
        """Return the cross-entropy of causal and masked rows, in nats; the sum of both."""
        hidden = model.backbone(batch)
        rows = batch.part(CausalRows)
        if rows is None:  # all of one kind
            return model.token_head.loss(hidden, batch)
        is_causal = rows.is_causal[:, None]
        causal = model.token_head.loss(hidden, replace(batch, weights=batch.weights * is_causal))
        masked = model.token_head.loss(hidden, replace(batch, weights=batch.weights * ~is_causal))
        components = {
            "causal": (causal.total, causal.count),
            "masked": (masked.total, masked.count),
        }
        total, count = causal.total + masked.total, causal.count + masked.count
        return Loss(total, count, components, hidden.memory)
