"""Two language models of one text, left to right and right to left: ELMo's pretraining."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from foreword.data.rng import RowRng
from foreword.nn.model import Backbone, Model, neural
from foreword.objectives._contract import Prediction, Term
from foreword.types import Backward, Batch, Example, Hidden, Loss, NextToken, Rows, Tokens, Vocab


@dataclass(frozen=True)
class Bidirectional(Term):
    """Each token is predicted from those before it and, separately, from those after it.

        ids       [ 7  8  9  4  2]
        inputs    [ 7  8  9  4  2]
        targets   [ 8  9  4  2  .]          . is not scored
        backward  [ .  7  8  9  4]

    With layout `bidirectional` and model `elmo`, whose states concatenate those of the
    left-to-right and the right-to-left stack, of equal width. Both share one output layer. Sum and
    count cover both directions, so the loss is their mean, as in the published code;
    `Loss.components` holds each. For a batch without `Backward` only the forward loss is computed.

    Also called: biLM.
    Reference: Peters et al. 2018, section 3.1.
    Differs from the paper: a full softmax instead of a sampled one.
    """

    @property
    def predicts(self) -> Prediction:
        return Prediction("next", both_directions=True)

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the row as the target; nothing is masked, and all but padding counts."""
        weights = (rows.documents >= 0).astype(np.float32)
        tokens = Tokens(rows.ids, rows.documents, rows.positions)
        return Example(None, tokens, weights, parts=rows.parts_of(NextToken))

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """Return the output layer of both directions; a full softmax has a bias per token."""
        backbone = neural(backbone)
        if not backbone.settings.lm_head.is_full_softmax:
            return nn.ModuleDict({"token": backbone.build_token_head()})
        return nn.ModuleDict({"token": backbone.build_softmax_head(bias=True)})

    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """Return the cross-entropy of the next token and of the previous one, in nats."""
        forward = model.token_head.loss(hidden, batch)
        targets = batch.part(Backward)
        if targets is None:
            return forward
        states = hidden.states[..., neural(model.backbone).settings.token_width :]
        reverse = replace(batch, targets=targets.targets, weights=targets.weights)
        backward = model.token_head.loss(Hidden(states), reverse)
        return Loss(
            forward.total + backward.total,
            forward.count + backward.count,
            {
                "forward": (forward.total, forward.count),
                "backward": (backward.total, backward.count),
            },
        )
