"""Span corruption: replace spans by sentinels and predict the spans (T5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Interval

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.objectives._contract import SourceForm
from foreword.objectives._source_target import (
    SourceTarget,
    compact,
    example_of,
    first_and_last,
    piece_starts,
)
from foreword.settings.ranges import LARGEST, OpenShare
from foreword.types import Array, Example, MaxLengths, Rows, Vocab


@dataclass(frozen=True)
class SpanCorruption(SourceTarget):
    """Each masked span becomes one sentinel; the target lists the sentinels and their spans.

        ids      [ 7  8  9  4  5  6]       <extra_id_0> is 50, <extra_id_1> is 51, </s> is 1
        inputs   [ 7 50  4 51  1]
        targets  [50  8  9 51  5  6  1]

    as with `rate = 0.6` and `mean_span = 2`. With layouts `encoder_decoder`, `prefix` and
    `decoder`. Each document of a row has its own source and target, with sentinels from the first
    on. Rows of equal length have equal numbers of masked tokens and of spans, so rows of one
    document are not padded; a span across the end of a document is cut in two there, which adds a
    sentinel.

    Attributes:
        rate: share of the tokens that is masked.
        mean_span: mean length of a span, in tokens.
        end: the token after each document's source and target; "" for none.

    Also called: denoising, infilling.
    Reference: Raffel et al. 2020, section 3.1.4, and appendix figure 2.
    Differs from the paper: as in their code, no closing sentinel; a row begins with unmasked text
    and ends with a span.
    """

    rate: OpenShare = 0.15
    mean_span: Annotated[float, Interval(ge=1, le=LARGEST)] = 3.0
    end: str = "</s>"

    def counts(self, length: int) -> tuple[int, int]:
        """Return the numbers of masked tokens and of spans in a row of `length` tokens."""
        masked = min(max(round(length * self.rate), 1), length - 1)
        spans = min(max(round(masked / self.mean_span), 1), masked, length - masked)
        return masked, spans

    def require_room(self, length: int) -> None:
        """Check that the masked tokens of a row round to at least one span.

        Raises:
            ValueError: spans are too long for rows of `length` tokens.
        """
        masked, _ = self.counts(length)
        if round(masked / self.mean_span) < 1:
            raise ValueError(
                f"mean_span: spans of {self.mean_span:g} tokens, but only {masked} of a row of "
                f"{length} are masked; use longer rows or a smaller value"
            )

    @property
    def source_forms(self) -> tuple[SourceForm, ...]:
        return (SourceForm(has_sentinels=True),)

    def max_lengths(self, length: int, text: int) -> MaxLengths:
        """Return the lengths for a document that has all the spans of its row."""
        masked, spans = self.counts(length)
        end = 1 if self.end else 0
        source, target = min(text, length - masked), min(text, masked)
        return MaxLengths(source + spans + end, target + spans + end, text + 2 * (spans + end))

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the source with sentinels and the target with the masked spans.

        Raises:
            UserError: the row needs more sentinels than the tokenizer has, or is too short.
        """
        length = rows.ids.shape[1]
        if length < 2:
            raise UserError("objective: span_corruption needs rows of at least 2 tokens")
        # Where spans start: at masked tokens after an unmasked one or another document's.
        masked = self._masked(rng, length)
        documents = np.asarray(rows.documents)
        is_first, _ = first_and_last(documents)
        is_new = is_first.copy()
        is_new[:, 1:] |= ~masked[:, :-1]
        starts = masked & is_new & (documents >= 0)
        # The sentinel of each span, numbered within its document.
        number = _number_within(starts, is_first)
        if number.max() >= len(vocab.sentinels):
            raise UserError(
                f"objective: {number.max() + 1} spans in a row of {length}, but the tokenizer has "
                f"{len(vocab.sentinels)} sentinels; use shorter rows or a longer mean_span"
            )
        sentinel = vocab.sentinels[np.maximum(number, 0)]
        end = vocab.id(self.end) if self.end else None
        # Both sides have the sentinels; the source has the unmasked tokens, the target the masked.
        source = compact(documents, (sentinel, starts), (rows.ids, ~masked), end=end)
        target = compact(documents, (sentinel, starts), (rows.ids, masked), end=end)
        return example_of(source, target)

    def _masked(self, rng: RowRng, length: int) -> Array:
        """Choose the tokens to mask, (batch, length) bool; gaps and spans alternate, gap first."""
        masked, spans = self.counts(length)
        gap_lengths = _partition(rng.uniform(length - masked), spans)
        span_lengths = _partition(rng.uniform(masked), spans)
        lengths = np.stack([gap_lengths, span_lengths], axis=2).reshape(len(gap_lengths), -1)
        ends = np.cumsum(lengths, axis=1)  # (batch, 2 spans)
        is_edge = np.zeros((len(lengths), length + 1), dtype=np.int64)
        np.put_along_axis(is_edge, ends, 1, axis=1)
        return np.asarray(np.cumsum(is_edge, axis=1)[:, :length] % 2 == 1)

    def restore(self, source: Array, target: Array, vocab: Vocab) -> Array:
        """Return the text of one document's source and target, (length,); inverse of `corrupt`."""
        end = vocab.id(self.end) if self.end else -1
        spans: dict[int, list[int]] = {}
        current: list[int] = []
        sentinels = set(vocab.sentinels.tolist())
        for token in target.tolist():
            if token in sentinels:
                current = spans.setdefault(token, [])
            else:
                current.append(token)
        if current and current[-1] == end:
            current.pop()
        tokens = source.tolist()
        if tokens and tokens[-1] == end:
            tokens.pop()
        components = [spans.get(token, [token]) for token in tokens]
        return np.asarray([token for part in components for token in part], dtype=np.int64)


def _number_within(starts: Array, is_first: Array) -> Array:
    """Return the number of each position's latest span in its document, from 0; (batch, length)."""
    count = np.cumsum(starts, axis=1)
    before = np.take_along_axis(count - starts, piece_starts(is_first), axis=1)
    return np.asarray(count - before - 1)


def _partition(draws: Array, parts: int) -> Array:
    """Return random lengths of `parts` non-empty parts of a whole, all cuts equally likely.

    Args:
        draws: uniform, (batch, whole).
        parts: number of parts.

    Returns:
        (batch, parts) int64, each row summing to the whole.
    """
    batch, whole = draws.shape
    # The parts - 1 smallest of whole - 1 draws give the items to cut after.
    cuts = np.sort(np.argsort(draws[:, : whole - 1], axis=1)[:, : parts - 1] + 1, axis=1)
    edges = np.concatenate(
        [np.zeros((batch, 1), np.int64), cuts, np.full((batch, 1), whole)], axis=1
    )
    return np.diff(edges, axis=1)
