"""Hide some tokens and predict them from both sides: BERT's cloze."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from foreword.data.rng import RowRng
from foreword.nn.heads import TokenHead
from foreword.nn.model import Backbone, Model
from foreword.objectives._contract import Prediction, Term
from foreword.objectives._masking import (
    candidates_of,
    in_place,
    mask_tokens,
    quota,
    random_ordinary,
    require_shares,
    word_starts,
)
from foreword.ranges import PositiveShare, Share
from foreword.types import Array, Batch, Example, Hidden, Loss, Rows, Vocab


@dataclass(frozen=True)
class Masked(Term):
    """A share of the tokens is chosen; most become [MASK], some a random token, some stay.

        ids      [ 7  8  9  4  2]          [MASK] is 3
        inputs   [ 7  3  9  4  2]
        targets  [ .  8  .  .  .]          . is not scored

    With layout `encoder`. Special tokens are never chosen. Choices depend on the row's place in
    the order of training, so each epoch has fresh ones (RoBERTa's dynamic masking).

    Attributes:
        rate: share of each row's ordinary tokens that is predicted, at least one.
        mask: share of these that becomes [MASK].
        random: share of these that becomes a random ordinary token; the rest stays as it is.
        whole_words: choose words, all their pieces at once.
        transform: BERT's dense layer, GELU and LayerNorm before the output layer.

    Reference: Devlin et al. 2019, section 3.1; Liu et al. 2019, section 4.1.
    Differs from the paper: with whole words, a row's last chosen word may pass the share.
    """

    rate: PositiveShare = 0.15
    mask: Share = 0.8
    random: Share = 0.1
    whole_words: bool = False
    transform: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_shares(self.mask, self.random)

    @property
    def predicts(self) -> Prediction:
        """Masked tokens, where they stand."""
        return "in_place"

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Inputs with tokens hidden, targets at the same positions."""
        length = rows.ids.shape[1]
        chosen = self._choose(rows, rng.uniform(length), vocab)
        fate = rng.uniform(length)
        others = random_ordinary(rng, length, vocab)
        hidden = chosen & (fate < self.mask)
        is_random = chosen & ~hidden & (fate < self.mask + self.random)
        return in_place(rows, mask_tokens(rows.ids, hidden, is_random, others, vocab), chosen)

    def _choose(self, rows: Rows, draws: Array, vocab: Vocab) -> Array:
        """Which tokens are predicted, (batch, length) bool: exactly the share of each row."""
        candidates = candidates_of(rows, vocab)
        wanted = quota(candidates, self.rate)[:, None]
        if not self.whole_words:
            draws = np.where(candidates, draws, 2.0)
            ordered = np.sort(draws, axis=1)
            last = np.take_along_axis(ordered, np.maximum(wanted - 1, 0), axis=1)
            return np.asarray(candidates & (draws <= last) & (wanted > 0))
        # A word's pieces share the draw of its first piece, so sorting keeps them together.
        first = word_starts(rows, candidates, vocab)
        column = np.arange(rows.ids.shape[1])
        start = np.maximum.accumulate(np.where(first, column, 0), axis=1)
        draws = np.where(candidates, np.take_along_axis(draws, start, axis=1), 2.0)
        order = np.argsort(draws, axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.broadcast_to(column, order.shape), axis=1)
        return np.asarray(candidates & (np.take_along_axis(rank, start, axis=1) < wanted))

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """The output layer with a bias per token, after BERT's transform."""
        head = TokenHead(backbone.settings, backbone.embedding, transform=self.transform, bias=True)
        return nn.ModuleDict({"token": head})

    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """Cross-entropy of the chosen tokens, in nats."""
        return model.token_head.loss(hidden, batch)
