"""Predict each token from those before it: the language model of n-grams, LSTMs and GPT."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from foreword.data.rng import RowRng
from foreword.nn.model import Backbone, Model
from foreword.objectives._contract import Prediction, Term
from foreword.types import Batch, Example, Hidden, Loss, NextToken, Rows, Tokens, Vocab


@dataclass(frozen=True)
class Causal(Term):
    """The whole row is the target; the layout lets each token attend to earlier ones only.

        ids      [ 7  8  9  4  2]
        inputs   [ 7  8  9  4  2]
        targets  [ 8  9  4  2  .]          . is not scored

    With layout `decoder`. The first token of a document is not predicted unless the packing puts
    a `bos` token before it. The last position of a row predicts a token where the packing supplies
    the next one (`NextToken`).

    Also called: CLM, LM, language modelling, autoregressive, next token.
    Reference: Radford et al. 2018, section 3.1.
    """

    @property
    def predicts(self) -> Prediction:
        return Prediction("next")

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the row as the target; nothing is masked, and all but padding counts."""
        weights = (rows.documents >= 0).astype(np.float32)
        tokens = Tokens(rows.ids, rows.documents, rows.positions)
        return Example(None, tokens, weights, parts=rows.parts_of(NextToken))

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """Return the model's output layer."""
        return nn.ModuleDict({"token": backbone.build_token_head()})

    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """Return the cross-entropy of the next token, in nats."""
        return model.token_head.loss(hidden, batch)
