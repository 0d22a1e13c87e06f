"""Predict each token from those before it: the language model of n-grams, LSTMs and GPT."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from foreword.data.rng import RowRng
from foreword.nn.model import Backbone, Model
from foreword.objectives._contract import Prediction, Term
from foreword.objectives._masking import candidates_of
from foreword.settings.ranges import Share
from foreword.types import (
    Batch,
    Example,
    Hidden,
    Loss,
    MaskedInputs,
    NextToken,
    ReadWhole,
    Rows,
    Tokens,
    Vocab,
)


@dataclass(frozen=True)
class Causal(Term):
    """The whole row is the target; the layout lets each token attend to earlier ones only.

        ids      [ 7  8  9  4  2]
        inputs   [ 7  8  9  4  2]
        targets  [ 8  9  4  2  .]          . is not scored

    With layout `decoder`. The first token of a document is not predicted unless the packing puts
    a `bos` token before it. The last position of a row predicts a token where the packing supplies
    the next one (`NextToken`).

    With `masked_inputs = 0.4` the model reads [MASK] in place of tokens and predicts them all:

        ids      [ 7  8  9  4  2]          [MASK] is 3
        inputs   [ 7  3  9  3  2]
        targets  [ 8  9  4  2  .]

    In training alone: held-out text is read whole, so that its loss is that of the text. This is
    word dropout, or token dropout.

    Attributes:
        masked_inputs: the probability with which an ordinary token is read as [MASK] in training.

    Also called: CLM, LM, language modelling, autoregressive, next token.
    Reference: Radford et al. 2018, section 3.1; Zhuang et al. 2025, "Mask-enhanced autoregressive
    prediction", whose code masks 15 %.
    Differs from the paper: each token is masked with this probability; MEAP masks the same
    positions in all rows of a batch.
    """

    masked_inputs: Share = 0.0

    @property
    def predicts(self) -> Prediction:
        return Prediction("next")

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the row as the target, of which all but padding counts, and its masked inputs.

        Raises:
            UserError: inputs are masked, and the tokenizer lacks [MASK].
        """
        weights = (rows.documents >= 0).astype(np.float32)
        tokens = Tokens(rows.ids, rows.documents, rows.positions)
        example = Example(None, tokens, weights, parts=rows.parts_of(NextToken))
        if not self.masked_inputs or rows.part(ReadWhole) is not None:
            return example
        is_masked = rng.uniform(rows.ids.shape[1]) < self.masked_inputs
        is_masked &= candidates_of(rows, vocab)
        return example.with_part(MaskedInputs(np.where(is_masked, vocab.id("[MASK]"), rows.ids)))

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """Return the model's output layer."""
        return nn.ModuleDict({"token": backbone.build_token_head()})

    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """Return the cross-entropy of the next token, in nats."""
        return model.token_head.loss(hidden, batch)
