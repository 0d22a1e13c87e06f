"""Permutation language modelling: predict tokens in a random order (XLNet)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from foreword.data.rng import RowRng
from foreword.nn.model import Backbone, Model, neural
from foreword.objectives._contract import Prediction, Term
from foreword.settings.ranges import CountOrZero, PositiveShare
from foreword.types import (
    Array,
    Batch,
    Example,
    Hidden,
    Loss,
    PairLabels,
    PredictionOrder,
    Rows,
    Tokens,
    Vocab,
)


@dataclass(frozen=True)
class Permutation(Term):
    """Tokens are predicted in a random order, each from the context and the targets before it.

        ids      [ 7  8  9  4  2]
        inputs   [ 7  8  9  4  2]
        targets  [ 8  9]                   by position; none sees itself

    as with `rate = 0.4`. With layout `two_streams`. Only the tokens that come last in the order
    are targets; the rest is context, visible to all. Nothing is replaced by [MASK]. Special tokens
    are context. The choice depends on the row's number in the order of training. Full rows have
    the same number of targets.

    Attributes:
        rate: share of each row's tokens that is predicted, at least one; 1 / K of the paper.
        max_span: targets are spans of 1 to `max_span` tokens, of n with a probability proportional
            to 1 / n, each at a random offset in a window of n / rate tokens; 0 for single tokens
            anywhere.

    Also called: PLM.
    Reference: Yang et al. 2019, sections 2.2 and 2.3 and appendix A.6.
    Differs from the paper: spans count tokens, not words; special tokens are not in the order; a
    row's last span is cut, or single tokens are added, to reach the number exactly.
    """

    rate: PositiveShare = 1 / 6
    max_span: CountOrZero = 5

    def require_room(self, length: int) -> None:
        """Check that the longest span does not exceed the number of targets in a row.

        Raises:
            ValueError: spans are too long for rows of `length` tokens.
        """
        predicted = max(round(self.rate * length), 1)
        if self.max_span > predicted:
            raise ValueError(
                f"max_span: spans of up to {self.max_span} tokens, but only {predicted} of a row "
                f"of {length} are predicted; use longer rows or a smaller value"
            )

    @property
    def predicts(self) -> Prediction:
        return Prediction("in_place", in_order=True)

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the unchanged rows with the targets and their order of prediction."""
        # The number of targets of each row.
        length = rows.ids.shape[1]
        candidates = ~vocab.is_special[rows.ids] & (rows.documents >= 0)
        number = np.rint(self.rate * (rows.documents >= 0).sum(1)).astype(np.int64)
        number = np.minimum(np.maximum(number, 1), candidates.sum(1))
        # The targets: ranked by their draws, the tokens of a span stay together.
        draws = self._draws(rng, length)
        is_target = candidates & (_rank(np.where(candidates, draws, 2.0)) < number[:, None])
        # Their order: a random permutation.
        order = _rank(np.where(is_target, rng.uniform(length), 1.0))
        return Example(
            source=Tokens(rows.ids, rows.documents, rows.positions, rows.segments),
            target=Tokens(rows.ids, rows.documents, rows.positions),
            weights=is_target.astype(np.float32),
            is_aligned=True,
            parts=(*rows.parts_of(PairLabels), PredictionOrder(np.where(is_target, order, -1))),
        )

    def _draws(self, rng: RowRng, length: int) -> Array:
        """Return a draw for each position, (batch, length).

        All positions of a span share one in [0, 1); other positions have one each, in [1, 2).
        """
        draws, single = rng.uniform(length), rng.uniform(length)
        if not self.max_span:
            return single
        # Lengths of spans, and windows side by side with one span each.
        shares = np.cumsum(1 / np.arange(1, self.max_span + 1))
        spans = 1 + np.searchsorted(shares / shares[-1], rng.uniform(length), side="right")
        spans = np.minimum(spans, self.max_span)  # (batch, windows), more than fit in a row
        windows = np.rint(spans / self.rate).astype(np.int64)
        stops = np.cumsum(windows, axis=1)
        starts = stops - windows + (rng.uniform(length) * (windows - spans + 1)).astype(np.int64)
        # The window of each position, (batch, length).
        is_edge = np.zeros((len(spans), length + 1), dtype=np.int64)
        np.put_along_axis(is_edge, np.minimum(stops, length), 1, axis=1)
        window = np.cumsum(is_edge, axis=1)[:, :length]

        def by_position(values: Array) -> Array:
            return np.take_along_axis(values, window, axis=1)

        offset = np.arange(length) - by_position(starts)
        is_in_span = (offset >= 0) & (offset < by_position(spans))
        return np.where(is_in_span, by_position(draws), 1.0 + single)

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """Return the output layer with a bias per token."""
        head = neural(backbone).build_softmax_head(bias=True)
        return nn.ModuleDict({"token": head})

    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """Return the cross-entropy of the targets, in nats."""
        return model.token_head.loss(hidden, batch)


def _rank(draws: Array) -> Array:
    """Return each draw's rank in its row, from 0; ties from left to right; (batch, length)."""
    order = np.argsort(draws, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(draws.shape[1]), order.shape), axis=1)
    return rank
