"""Replace spans by sentinels and write out what they stood for: T5's denoising."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from foreword.data.rng import RowRng
from foreword.data.rows import positions_within
from foreword.errors import UserError
from foreword.nn.heads import TokenHead
from foreword.nn.model import Backbone, Model
from foreword.types import Array, Batch, Example, Hidden, Loss, Rows, Tokens, Vocab


@dataclass(frozen=True)
class SpanCorruption:
    """Spans of the row become one sentinel each; the target lists sentinels and their spans.

        ids      [ 7  8  9  4  5  6]       <extra_id_0> is 50, <extra_id_1> is 51, </s> is 1
        inputs   [ 7 50  4 51  1]
        targets  [50  8  9 51  5  6  1]

    as with `rate = 0.6` and `mean_span = 2`. With layouts `encoder_decoder`, `prefix` and
    `decoder`. The number of hidden tokens and of
    spans is the same in every row of one length, so nothing is padded; a span that would reach
    over the end of a document is cut in two there, which adds a sentinel.

    Attributes:
        rate: share of the tokens that is hidden.
        mean_span: mean length of a span, in tokens.
        end: put after input and target; "" for none.

    Reference: Raffel et al. 2020, section 3.1.4, and appendix figure 2.
    Differs from the paper: as in their code, no closing sentinel; a row begins with kept text and
    ends with a span.
    """

    rate: float = 0.15
    mean_span: float = 3.0
    end: str = "</s>"

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ValueError(f"rate: must be in (0, 1), got {self.rate}")
        if self.mean_span < 1:
            raise ValueError(f"mean_span: must be at least 1 token, got {self.mean_span}")

    def counts(self, length: int) -> tuple[int, int]:
        """How many tokens are hidden, and in how many spans, in a row of `length` tokens."""
        hidden = min(max(round(length * self.rate), 1), length - 1)
        spans = min(max(round(hidden / self.mean_span), 1), hidden, length - hidden)
        return hidden, spans

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Inputs with sentinels, and the target that puts the text back.

        Raises:
            UserError: the row needs more sentinels than the tokenizer has, or is too short.
        """
        batch, length = rows.ids.shape
        if length < 2:
            raise UserError("objective: span_corruption needs rows of at least 2 tokens")
        hidden = self._hidden(rng, length)
        documents = np.asarray(rows.documents)
        is_new = np.ones_like(hidden)  # a span starts where the token before is kept or foreign
        is_new[:, 1:] = ~hidden[:, :-1] | (documents[:, 1:] != documents[:, :-1])
        starts = hidden & is_new & (documents >= 0)
        number = np.cumsum(starts, axis=1) - 1  # (batch, length): which span this is
        if number.max() >= len(vocab.sentinels):
            raise UserError(
                f"objective: {number.max() + 1} spans in a row of {length}, but the tokenizer has "
                f"{len(vocab.sentinels)} sentinels; shorter rows or a longer mean_span mend it"
            )
        sentinel = vocab.sentinels[np.maximum(number, 0)]
        kept = np.where(starts, sentinel, rows.ids)
        end = vocab.id(self.end) if self.end else None
        source = _compact(kept, ~hidden | starts, documents, end)
        # Each hidden token takes a place in the target, each start one more before it.
        doubled = np.stack([sentinel, rows.ids], axis=2).reshape(batch, 2 * length)
        wanted = np.stack([starts, hidden], axis=2).reshape(batch, 2 * length)
        target = _compact(doubled, wanted, documents.repeat(2, axis=1), end)
        return Example(source, target, (target.documents >= 0).astype(np.float32))

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
        """The text that one pair of inputs and target came from: the exact inverse, (length,)."""
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
        parts = [spans.get(token, [token]) for token in tokens]
        return np.asarray([token for part in parts for token in part], dtype=np.int64)

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """The output layer, without transform and bias."""
        return nn.ModuleDict({"token": TokenHead(backbone.settings, backbone.embedding)})

    def loss(self, model: Model, batch: Batch) -> Loss:
        """Cross-entropy of the target, in nats."""
        return self.read(model, batch, model.backbone(batch))

    def read(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """The same from the backbone's states, as a term of a sum."""
        return model.token_head.loss(hidden, batch)


def _partition(draws: Array, parts: int) -> Array:
    """Random lengths of `parts` non-empty pieces of a whole, all cuts equally likely.

    Args:
        draws: uniform, (batch, whole).
        parts: number of pieces.

    Returns:
        (batch, parts) int64, each row summing to the whole.
    """
    batch, whole = draws.shape
    # The parts - 1 smallest of whole - 1 draws say after which item to cut.
    cuts = np.sort(np.argsort(draws[:, : whole - 1], axis=1)[:, : parts - 1] + 1, axis=1)
    edges = np.concatenate(
        [np.zeros((batch, 1), np.int64), cuts, np.full((batch, 1), whole)], axis=1
    )
    return np.diff(edges, axis=1)


def _compact(ids: Array, wanted: Array, documents: Array, end: int | None) -> Tokens:
    """The wanted ids of each row moved together, `end` after them, padding behind.

    Padding (documents -1) is dropped; where all rows want as many, nothing is padded.
    """
    wanted = wanted & (documents >= 0)
    batch = len(ids)
    counts = wanted.sum(1)
    width = int(counts.max()) + (end is not None)
    row, column = np.nonzero(wanted)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    place = np.arange(len(row)) - first[row]
    out = np.zeros((batch, width), dtype=np.int64)
    out_documents = np.full((batch, width), -1, dtype=np.int64)
    out[row, place] = ids[row, column]
    out_documents[row, place] = documents[row, column]
    if end is not None:
        every = np.arange(batch)
        out[every, counts] = end
        out_documents[every, counts] = np.where(
            counts > 0, out_documents[every, np.maximum(counts - 1, 0)], -1
        )
    return Tokens(out, out_documents, positions_within(out_documents))
