"""Two language models on one text, one of each direction: what ELMo is pretrained by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from torch import nn

from foreword.data.rng import RowRng
from foreword.nn.heads import TokenHead
from foreword.nn.model import Backbone, Model
from foreword.objectives._contract import Prediction, Term
from foreword.types import Batch, Example, Hidden, Loss, Rows, Tokens, Vocab


@dataclass(frozen=True)
class Bidirectional(Term):
    """Each token is predicted from those before it and, apart from that, from those behind it.

        ids       [ 7  8  9  4  2]
        inputs    [ 7  8  9  4  2]
        targets   [ 8  9  4  2  .]          . is not scored
        backward  [ .  7  8  9  4]

    With layout `bidirectional` and model `elmo`, whose states are those of the left-to-right
    reading, and behind them as many of the other. Both predict by one output layer. The sum and
    the count are of both, so the loss is the mean of the two directions', as the published code
    has it; `Loss.components` has them apart. A batch without `backward` asks for the one direction.

    Reference: Peters et al. 2018, section 3.1.
    Differs from the paper: a full softmax, where theirs was sampled.
    """

    predicts_both_directions: ClassVar[bool] = True

    @property
    def predicts(self) -> Prediction:
        """The next token, and the one before."""
        return "next"

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Nothing is hidden: the target is the row; all but padding counts."""
        weights = (rows.documents >= 0).astype(np.float32)
        tokens = Tokens(rows.ids, rows.documents, rows.positions)
        return Example(None, tokens, weights, next_token=rows.next_token)

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """The output layer of both directions; a full one has a bias per token."""
        settings = backbone.settings
        if not settings.output.is_full_softmax:
            return nn.ModuleDict({"token": backbone.build_token_head()})
        return nn.ModuleDict({"token": TokenHead(settings, backbone.embedding, bias=True)})

    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """Cross-entropy of the next token and of the one before, in nats."""
        forward = model.token_head.loss(hidden, batch)
        if batch.backward is None:
            return forward
        behind = hidden.states[..., model.backbone.settings.token_width :]
        asked = replace(batch, targets=batch.backward.targets, weights=batch.backward.weights)
        backward = model.token_head.loss(Hidden(behind), asked)
        return Loss(
            forward.total + backward.total,
            forward.weight + backward.weight,
            {
                "forward": (forward.total, forward.weight),
                "backward": (backward.total, backward.weight),
            },
        )
