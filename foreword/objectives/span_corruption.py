"""Replace spans by sentinels and write out what they stood for: T5's denoising."""

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
    begins,
    compact,
    example_of,
    first_and_last,
)
from foreword.ranges import LARGEST, OpenShare
from foreword.types import Array, Example, MaxLengths, Rows, Vocab


@dataclass(frozen=True)
class SpanCorruption(SourceTarget):
    """Spans of the row become one sentinel each; the target lists sentinels and their spans.

        ids      [ 7  8  9  4  5  6]       <extra_id_0> is 50, <extra_id_1> is 51, </s> is 1
        inputs   [ 7 50  4 51  1]
        targets  [50  8  9 51  5  6  1]

    as with `rate = 0.6` and `mean_span = 2`. With layouts `encoder_decoder`, `prefix` and
    `decoder`. Each document of a row has a source and a target of its own, its sentinels counted
    from the first. The number of hidden tokens and of spans is the same in every row of one
    length, so rows of one document are not padded; a span that would reach over the end of a
    document is cut in two there, which adds a sentinel.

    Attributes:
        rate: share of the tokens that is hidden.
        mean_span: mean length of a span, in tokens.
        end: put after each document's input and target; "" for none.

    Reference: Raffel et al. 2020, section 3.1.4, and appendix figure 2.
    Differs from the paper: as in their code, no closing sentinel; a row begins with kept text and
    ends with a span.
    """

    rate: OpenShare = 0.15
    mean_span: Annotated[float, Interval(ge=1, le=LARGEST)] = 3.0
    end: str = "</s>"

    def counts(self, length: int) -> tuple[int, int]:
        """How many tokens are hidden, and in how many spans, in a row of `length` tokens."""
        hidden = min(max(round(length * self.rate), 1), length - 1)
        spans = min(max(round(hidden / self.mean_span), 1), hidden, length - hidden)
        return hidden, spans

    def require_room(self, length: int) -> None:
        """Makes sure that what is hidden of a row rounds to at least one span.

        Raises:
            ValueError: spans are too long for rows of `length` tokens.
        """
        hidden, _ = self.counts(length)
        if round(hidden / self.mean_span) < 1:
            raise ValueError(
                f"mean_span: spans of {self.mean_span:g} tokens, but of a row of {length} only "
                f"{hidden} are hidden; longer rows or a smaller value mend it"
            )

    @property
    def source_forms(self) -> tuple[SourceForm, ...]:
        """What its sources look like."""
        return (SourceForm(has_sentinels=True),)

    def max_lengths(self, length: int, text: int) -> MaxLengths:
        """Return the lengths of a document that has all the spans of its row."""
        hidden, spans = self.counts(length)
        end = 1 if self.end else 0
        source, target = min(text, length - hidden), min(text, hidden)
        return MaxLengths(source + spans + end, target + spans + end, text + 2 * (spans + end))

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Inputs with sentinels, and the target that puts the text back.

        Raises:
            UserError: the row needs more sentinels than the tokenizer has, or is too short.
        """
        length = rows.ids.shape[1]
        if length < 2:
            raise UserError("objective: span_corruption needs rows of at least 2 tokens")
        hidden = self._hidden(rng, length)
        documents = np.asarray(rows.documents)
        is_first, _ = first_and_last(documents)
        is_new = is_first.copy()  # a span starts where the token before is kept or foreign
        is_new[:, 1:] |= ~hidden[:, :-1]
        starts = hidden & is_new & (documents >= 0)
        number = _number_within(starts, is_first)
        if number.max() >= len(vocab.sentinels):
            raise UserError(
                f"objective: {number.max() + 1} spans in a row of {length}, but the tokenizer has "
                f"{len(vocab.sentinels)} sentinels; shorter rows or a longer mean_span mend it"
            )
        sentinel = vocab.sentinels[np.maximum(number, 0)]
        end = vocab.id(self.end) if self.end else None
        # Each hidden token takes a place in the target, each start one more before it.
        source = compact(documents, (sentinel, starts), (rows.ids, ~hidden), end=end)
        target = compact(documents, (sentinel, starts), (rows.ids, hidden), end=end)
        return example_of(source, target)

    def _hidden(self, rng: RowRng, length: int) -> Array:
        """Which tokens are hidden, (batch, length) bool: kept, hidden, kept, ..., hidden."""
        hidden, spans = self.counts(length)
        kept_lengths = _partition(rng.uniform(length - hidden), spans)
        hidden_lengths = _partition(rng.uniform(hidden), spans)
        both = np.stack([kept_lengths, hidden_lengths], axis=2).reshape(len(kept_lengths), -1)
        ends = np.cumsum(both, axis=1)  # (batch, 2 spans)
        turns = np.zeros((len(both), length + 1), dtype=np.int64)
        np.put_along_axis(turns, ends, 1, axis=1)
        return np.asarray(np.cumsum(turns, axis=1)[:, :length] % 2 == 1)

    def restore(self, source: Array, target: Array, vocab: Vocab) -> Array:
        """The text that one document's input and target came from: the exact inverse, (length,)."""
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
    """How many spans of its document began before or at each place, less one; (batch, length)."""
    count = np.cumsum(starts, axis=1)
    before = np.take_along_axis(count - starts, begins(is_first), axis=1)
    return np.asarray(count - before - 1)


def _partition(draws: Array, components: int) -> Array:
    """Random lengths of `components` non-empty pieces of a whole, all cuts equally likely.

    Args:
        draws: uniform, (batch, whole).
        components: number of pieces.

    Returns:
        (batch, parts) int64, each row summing to the whole.
    """
    batch, whole = draws.shape
    # The parts - 1 smallest of whole - 1 draws say after which item to cut.
    cuts = np.sort(np.argsort(draws[:, : whole - 1], axis=1)[:, : components - 1] + 1, axis=1)
    edges = np.concatenate(
        [np.zeros((batch, 1), np.int64), cuts, np.full((batch, 1), whole)], axis=1
    )
    return np.diff(edges, axis=1)
