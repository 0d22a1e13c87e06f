"""Predict the last tokens of a random order from all that come before it: XLNet's objective."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from foreword.data.rng import RowRng
from foreword.nn.heads import TokenHead
from foreword.nn.model import Backbone, Model
from foreword.objectives._contract import Prediction, Term
from foreword.ranges import CountOrZero, PositiveShare
from foreword.types import Array, Batch, Example, Hidden, Loss, Rows, Tokens, Vocab


@dataclass(frozen=True)
class Permutation(Term):
    """Tokens are predicted in a random order, each from the context and the targets before it.

        ids      [ 7  8  9  4  2]
        inputs   [ 7  8  9  4  2]
        targets  [ 8  9]                   by their places; none sees itself

    as with `rate = 0.4`. With layout `two_streams`. Only the last of the order are predicted: they
    are the targets, and the rest is context that all see. Nothing is replaced by [MASK]. Special
    tokens are context. Choices depend on the row's place in the order of training. Rows that are
    full have the same number of targets.

    Attributes:
        rate: share of each row's tokens that is predicted, at least one; 1 / K of the paper.
        max_span: targets are spans of 1 to so many tokens, n with a chance that goes as 1 / n,
            each somewhere in a window of n / rate tokens; 0 for single tokens anywhere.

    Reference: Yang et al. 2019, sections 2.2 and 2.3 and appendix A.6.
    Differs from the paper: spans count tokens, not words; special tokens have no place in the
    order; a row's last span is cut, or single tokens are added, to reach the number exactly.
    """

    rate: PositiveShare = 1 / 6
    max_span: CountOrZero = 5

    def require_room(self, length: int) -> None:
        """Makes sure that the longest span is no longer than what is predicted of a row.

        Raises:
            ValueError: spans are too long for rows of `length` tokens.
        """
        predicted = max(round(self.rate * length), 1)
        if self.max_span > predicted:
            raise ValueError(
                f"max_span: spans of up to {self.max_span} tokens, but of a row of {length} only "
                f"{predicted} are predicted; longer rows or a smaller value mend it"
            )

    @property
    def predicts(self) -> Prediction:
        """Some tokens, where they stand, in a random order."""
        return "in_place"

    @property
    def predicts_in_order(self) -> bool:
        """Whether examples say in which order tokens are predicted: they do."""
        return True

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """The row as it is, with the order of what is predicted in it."""
        length = rows.ids.shape[1]
        candidates = ~vocab.is_special[rows.ids] & (rows.documents >= 0)
        wanted = np.rint(self.rate * (rows.documents >= 0).sum(1)).astype(np.int64)
        wanted = np.minimum(np.maximum(wanted, 1), candidates.sum(1))
        draws = self._draws(rng, length)
        # Ranked by their draws, the tokens of a span stay together.
        is_target = candidates & (_rank(np.where(candidates, draws, 2.0)) < wanted[:, None])
        order = _rank(np.where(is_target, rng.uniform(length), 1.0))
        return Example(
            source=Tokens(rows.ids, rows.documents, rows.positions, rows.segments),
            target=Tokens(rows.ids, rows.documents, rows.positions),
            weights=is_target.astype(np.float32),
            is_aligned=True,
            labels=rows.labels,
            order=np.where(is_target, order, -1),
        )

    def _draws(self, rng: RowRng, length: int) -> Array:
        """A draw for each place, (batch, length): one in [0, 1) for all of a span, else above."""
        draws, single = rng.uniform(length), rng.uniform(length)
        if not self.max_span:
            return single
        shares = np.cumsum(1 / np.arange(1, self.max_span + 1))
        spans = 1 + np.searchsorted(shares / shares[-1], rng.uniform(length), side="right")
        spans = np.minimum(spans, self.max_span)  # (batch, windows): more than a row has
        windows = np.rint(spans / self.rate).astype(np.int64)
        stops = np.cumsum(windows, axis=1)
        begins = stops - windows + (rng.uniform(length) * (windows - spans + 1)).astype(np.int64)
        turns = np.zeros((len(spans), length + 1), dtype=np.int64)
        np.put_along_axis(turns, np.minimum(stops, length), 1, axis=1)
        window = np.cumsum(turns, axis=1)[:, :length]  # (batch, length): which one a place is in

        def of(values: Array) -> Array:
            return np.take_along_axis(values, window, axis=1)

        behind = np.arange(length) - of(begins)
        return np.where((behind >= 0) & (behind < of(spans)), of(draws), 1.0 + single)

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """The output layer with a bias per token."""
        head = TokenHead(backbone.settings, backbone.embedding, bias=True)
        return nn.ModuleDict({"token": head})

    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """Cross-entropy of the targets, in nats."""
        return model.token_head.loss(hidden, batch)


def _rank(draws: Array) -> Array:
    """The place of each in its row's order, from 0; ties from left to right; (batch, length)."""
    order = np.argsort(draws, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(draws.shape[1]), order.shape), axis=1)
    return rank
