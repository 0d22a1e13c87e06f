"""Masked spans of words, predicted in place and from the spans' boundaries: SpanBERT."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
from torch import nn

from foreword.data.rng import RowRng
from foreword.nn.boundary_head import BoundaryHead
from foreword.nn.model import Backbone, Model, neural
from foreword.objectives._contract import Prediction, Term
from foreword.objectives._masking import (
    candidates_of,
    in_place,
    mask_tokens,
    number_to_mask,
    random_ordinary,
    require_shares,
    word_starts,
)
from foreword.settings.ranges import Count, PositiveShare, Share
from foreword.types import Array, Batch, Example, Hidden, Loss, Rows, Vocab


@dataclass(frozen=True)
class SpanMasked(Term):
    """Spans of whole words are predicted; most become [MASK]s, some random tokens, some stay.

        ids      [ 7  8  9  4  5  6]       [MASK] is 3
        inputs   [ 7  8  3  3  5  6]
        targets  [ .  .  9  4  .  .]       . is not scored

    as with `rate = 0.34` and `longest = 2`. With layout `encoder`. Each token of a span is
    predicted twice: from its own state, and (the span-boundary objective) from the states just
    before and just after the span and an embedding of the token's position in it. The loss is the
    sum of both. Special tokens are never in a span, and spans do not touch.

    Attributes:
        rate: share of each row's ordinary tokens that is predicted.
        stop: probability that a span ends after a word: lengths are geometric.
        longest: words of the longest span; lengths are sampled given this maximum.
        mask: share of the spans that become [MASK]s.
        random: share of the spans that become random ordinary tokens; the rest stay unchanged.
        transform: BERT's dense layer, GELU and LayerNorm before the output layer.
        boundary: whether tokens are also predicted from their span's boundaries.
        positions: positions in a span that have an embedding; later ones share the last.
        d_position: width of these embeddings.

    Also called: span boundary.
    Reference: Joshi et al. 2020, sections 3.1 and 3.2; widths as in their code.
    Differs from the paper: a span starts at any position where it fits, all equally likely, and
    never overlaps others; it has a token of its document on either side. The last span of a row is
    cut to the words that are still needed.
    """

    rate: PositiveShare = 0.15
    stop: PositiveShare = 0.2
    longest: Count = 10
    mask: Share = 0.8
    random: Share = 0.1
    transform: bool = True
    boundary: bool = True
    positions: Count = 20
    d_position: Count = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        require_shares(self.mask, self.random)

    def require_room(self, length: int) -> None:
        """Check that the longest span fits in a row.

        Raises:
            ValueError: it does not fit in rows of `length` tokens.
        """
        if self.longest > length - 2:
            raise ValueError(
                f"longest: a span of {self.longest} words and a token on either side do not fit in "
                f"rows of {length} tokens; use longer rows or a smaller value"
            )

    @property
    def predicts(self) -> Prediction:
        """The tokens of the spans; their loss is without the boundary's."""
        return Prediction("in_place", component="masked" if self.boundary else "")

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the masked inputs and the targets at the same positions."""
        length = rows.ids.shape[1]
        # Fixed numbers of draws come first: the number that spans need differs by group of rows.
        fates, random_ids = rng.uniform(length), random_ordinary(rng, length, vocab)
        start = self._spans(rows, rng, vocab)
        chosen = start >= 0
        fate = np.take_along_axis(fates, np.maximum(start, 0), axis=1)  # one for a whole span
        is_masked = chosen & (fate < self.mask)
        is_random = chosen & ~is_masked & (fate < self.mask + self.random)
        inputs = mask_tokens(rows.ids, is_masked, is_random, random_ids, vocab)
        return in_place(rows, inputs, chosen)

    def lengths(self, draws: Array, max_words: Array | int) -> Array:
        """Return lengths in words from uniform draws: geometric, truncated at `max_words`."""
        if self.stop == 1:
            return np.ones(draws.shape, dtype=np.int64)
        # The inverse of the distribution function 1 - (1 - stop)^length, rescaled to end at `most`.
        mass = -np.expm1(np.log1p(-self.stop) * max_words)
        lengths = np.ceil(np.log1p(-draws * mass) / np.log1p(-self.stop)).astype(np.int64)
        return np.asarray(np.clip(lengths, 1, max_words))

    def _spans(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Array:
        """Return where the span of each token starts, -1 outside of spans; (batch, length) int64.

        Places one span after another, in all rows at once.
        """
        text = _WordBoundaries.of(rows, vocab)
        start = np.full(rows.ids.shape, -1, dtype=np.int64)
        column = np.arange(rows.ids.shape[1])
        remaining = number_to_mask(text.candidates, self.rate)  # (batch,): tokens still to choose
        max_words = np.full(len(remaining), self.longest, dtype=np.int64)  # that may still fit
        while (remaining > 0).any():
            # Sample a length, then one of the positions where such a span fits.
            draws = rng.uniform(2)
            words = self.lengths(draws[:, 0], np.maximum(max_words, 1))
            ends = text.ends(words)
            fits = text.fits(start >= 0, ends)
            options = fits.sum(1)
            number = np.minimum((draws[:, 1] * options).astype(np.int64), options - 1)
            first = np.asarray((fits.cumsum(1) > number[:, None]).argmax(1))
            # Where it fits nowhere, the row gets shorter spans from now on.
            max_words = np.where((remaining > 0) & (options == 0), words - 1, max_words)
            # Place the span, cut to what the row still needs.
            end = text.cut(first, np.take_along_axis(ends, first[:, None], axis=1)[:, 0], remaining)
            is_placed = (remaining > 0) & (options > 0)
            is_inside = is_placed[:, None] & (column >= first[:, None]) & (column < end[:, None])
            start = np.where(is_inside, first[:, None], start)
            remaining = np.where(max_words < 1, 0, remaining - np.where(is_placed, end - first, 0))
        return start

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """Return BERT's head, and with `boundary` the head that reads the spans' boundaries."""
        backbone = neural(backbone)
        token = backbone.build_softmax_head(transform=self.transform, bias=True)
        heads = nn.ModuleDict({"token": token})
        if self.boundary:
            settings, width = backbone.settings, token.weight.shape[1]
            heads["boundary"] = BoundaryHead(
                settings.d_model,
                width,
                self.positions,
                self.d_position,
                norms=(settings.build_norm(width), settings.build_norm(width)),
                bias=settings.bias,
            )
        return heads

    def chance_loss(self, vocab: int) -> float:
        """Return the loss of uniform predictions, in nats: twice a token's with `boundary`."""
        return (1 + self.boundary) * math.log(vocab)

    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """Return the cross-entropy of the spans' tokens, in nats; both predictions summed."""
        masked = model.token_head.loss(hidden, batch)
        if not self.boundary:
            return masked
        head = cast(BoundaryHead, model.heads["boundary"])
        boundary = head.loss(model.token_head, hidden, batch)
        components = {
            "masked": (masked.total, masked.count),
            "boundary": (boundary, masked.count),
        }
        return Loss(masked.total + boundary, masked.count, components, masked.memory)


@dataclass(frozen=True)
class _WordBoundaries:
    """The words of a group of rows.

    Attributes:
        documents: the document of each token, (batch, length) int64.
        candidates: which tokens may be in spans, (batch, length) bool.
        first: which tokens begin a word, (batch, length) bool.
        word: number of each token's word in its row, (batch, length) int64.
        starts: where each word begins, then `length`; (batch, length + 1) int64.
    """

    documents: Array
    candidates: Array
    first: Array
    word: Array
    starts: Array

    @classmethod
    def of(cls, rows: Rows, vocab: Vocab) -> _WordBoundaries:
        candidates = candidates_of(rows, vocab)
        first = word_starts(rows, candidates, vocab)
        word = np.cumsum(first, axis=1) - 1
        batch, length = first.shape
        starts = np.full((batch, length + 1), length)
        row, column = np.nonzero(first)
        starts[row, word[row, column]] = column
        return cls(rows.documents, candidates, first, word, starts)

    def ends(self, words: Array) -> Array:
        """Return where `words` words (batch,) from each token's word on end, (batch, length)."""
        last = np.minimum(self.word + words[:, None], self.starts.shape[1] - 1)
        return np.take_along_axis(self.starts, last, axis=1)

    def fits(self, taken: Array, ends: Array) -> Array:
        """Return where a new span that ends before `ends` may start, (batch, length) bool."""
        # No token of it is blocked: a non-candidate, in another span, or beside one.
        length = taken.shape[1]
        blocked = ~self.candidates | taken
        blocked[:, 1:] |= taken[:, :-1]
        blocked[:, :-1] |= taken[:, 1:]
        before = np.zeros((len(taken), length + 1), dtype=np.int64)
        np.cumsum(blocked, axis=1, out=before[:, 1:])
        is_free = np.take_along_axis(before, ends, axis=1) == before[:, :-1]
        # A token of the same document stands on either side.
        after = np.take_along_axis(self.documents, np.minimum(ends, length - 1), axis=1)
        has_edges = ends < length
        has_edges[:, 0] = False
        has_edges[:, 1:] &= (self.documents[:, :-1] == after[:, 1:]) & (after[:, 1:] >= 0)
        return np.asarray(self.first & is_free & has_edges)

    def cut(self, at: Array, ends: Array, max_tokens: Array) -> Array:
        """Return the ends (batch,) of spans from `at`, cut to the words that fill `max_tokens`."""
        row = np.arange(len(at))
        last = np.minimum(at + np.maximum(max_tokens, 1), ends) - 1
        return np.asarray(self.starts[row, self.word[row, last] + 1])
