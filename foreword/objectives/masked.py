"""Masked language modelling: mask some tokens and predict them from both sides (BERT)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from foreword.data.rng import RowRng
from foreword.nn.model import Backbone, Model, neural
from foreword.objectives._contract import Prediction, Term
from foreword.objectives._masking import (
    candidates_of,
    choose,
    in_place,
    mask_tokens,
    number_to_mask,
    random_ordinary,
    require_shares,
    word_starts,
)
from foreword.settings.ranges import CountOrZero, PositiveShare, Share
from foreword.types import Array, Batch, Example, Hidden, Loss, Rows, Vocab


@dataclass(frozen=True)
class Masked(Term):
    """A share of the tokens is predicted; most become [MASK], some a random token, some stay.

        ids      [ 7  8  9  4  2]          [MASK] is 3
        inputs   [ 7  3  9  4  2]
        targets  [ .  8  .  .  .]          . is not scored

    With layout `encoder`. Special tokens are never chosen. The choice depends on the row's number
    in the order of training, so it is fresh in each epoch (RoBERTa's dynamic masking), unless
    `masks` keeps it (static masking).

    Attributes:
        rate: share of each row's ordinary tokens that is predicted, at least one.
        mask: share of these that becomes [MASK].
        random: share of these that becomes a random ordinary token; the rest stays unchanged.
        whole_words: choose words, all their pieces at once.
        masks: number of different masks of a row that is read several times, one drawn each time:
            1 is RoBERTa's static masking, 10 what BERT's data had; 0 for a new one each time. Rows
            must stay the same in each epoch, as with `packing.shuffle = "rows"`.
        transform: BERT's dense layer, GELU and LayerNorm before the output layer.

    Also called: MLM, masked LM, masked language modelling, cloze.
    Reference: Devlin et al. 2019, section 3.1; Liu et al. 2019, section 4.1.
    Differs from the paper: with whole words, a row's last chosen word may exceed the share.
    """

    rate: PositiveShare = 0.15
    mask: Share = 0.8
    random: Share = 0.1
    whole_words: bool = False
    masks: CountOrZero = 0
    transform: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_shares(self.mask, self.random)

    @property
    def predicts(self) -> Prediction:
        return Prediction("in_place")

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the masked inputs and the targets at the same positions."""
        length = rows.ids.shape[1]
        if self.masks:
            rng = rng.by_content(rows.ids, self.masks)
        chosen = self._choose(rows, rng.uniform(length), vocab)
        fate = rng.uniform(length)
        random_ids = random_ordinary(rng, length, vocab)
        is_masked = chosen & (fate < self.mask)
        is_random = chosen & ~is_masked & (fate < self.mask + self.random)
        inputs = mask_tokens(rows.ids, is_masked, is_random, random_ids, vocab)
        return in_place(rows, inputs, chosen)

    def _choose(self, rows: Rows, draws: Array, vocab: Vocab) -> Array:
        """Choose the tokens to predict, exactly `rate` of each row; (batch, length) bool."""
        candidates = candidates_of(rows, vocab)
        number = number_to_mask(candidates, self.rate)
        if not self.whole_words:
            return choose(candidates, draws, number)
        # A word's pieces share the draw of its first piece, so sorting keeps them together.
        first = word_starts(rows, candidates, vocab)
        column = np.arange(rows.ids.shape[1])
        start = np.maximum.accumulate(np.where(first, column, 0), axis=1)
        draws = np.where(candidates, np.take_along_axis(draws, start, axis=1), 2.0)
        order = np.argsort(draws, axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.broadcast_to(column, order.shape), axis=1)
        return np.asarray(candidates & (np.take_along_axis(rank, start, axis=1) < number[:, None]))

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """Return the output layer with a bias per token, after BERT's transform."""
        head = neural(backbone).build_softmax_head(transform=self.transform, bias=True)
        return nn.ModuleDict({"token": head})

    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """Return the cross-entropy of the chosen tokens, in nats."""
        return model.token_head.loss(hidden, batch)
