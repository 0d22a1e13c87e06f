"""Full rows: documents end to end, cut where a row is full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from foreword.data.document_stream import DocumentStream
from foreword.data.endless_stream import EndlessStream
from foreword.data.packing._contract import Packed, Packing
from foreword.data.rng import mix, permute
from foreword.data.shards import Shards
from foreword.settings.ranges import Count
from foreword.types import Array, NextToken, Rows, Vocab


@dataclass(frozen=True)
class Documents(Packing):
    """Documents end to end, each between special tokens, in rows without padding.

    The documents form one endless stream: first in their order, then in a new random order in each
    epoch. Epoch follows epoch without a gap, so nothing is lost or padded, and cuts and neighbours
    are others each time. Row r of the stream is its tokens from r * length on; training sees the
    rows of an epoch in a random order. With `shuffle = "rows"` it sees those of the first epoch
    again, only in another order; the last one is padded.

        documents  7 8 9 | 4 | 5 6          length 4, after </s> (2)
        ids        [ 7  8  9  2]  [ 4  2  5  6]  [ 2  5  6  2] ...
        documents  [ 0  0  0  0]  [ 0  0  1  1]  [ 0  1  1  1]
        positions  [ 0  1  2  3]  [ 0  1  0  1]  [ 0  0  1  2]
        next token       .             </s>            .

    The last position of a row predicts the next token if both are of one document, so that cuts
    cost no prediction. Text that is read once ends in a row with padding.

    Attributes:
        length: tokens in a row.
        bos: the special token before each document, "" for none.
        eos: the special token after each document, "" for none.
        document_mask: whether documents of a row do not attend to each other; else a row is one
            text, as in GPT-2 and RoBERTa (FULL-SENTENCES).
        shuffle: what comes in a new order in each epoch: the `documents`, which are then cut
            anew, or only the `rows`, whose documents and cuts stay.
    """

    length: Count = 128
    bos: str = ""
    eos: str = "</s>"
    document_mask: bool = True
    shuffle: Literal["documents", "rows"] = "documents"

    def open(
        self, shards: Shards, vocab: Vocab, seed: int, batch: int, *, once: bool = False
    ) -> PackedDocuments:
        """Return the corpus as rows, in an order that depends on the seed alone.

        Raises:
            UserError: the text is shorter than a row, or the tokenizer lacks a special token.
        """
        del batch  # a row does not depend on it
        stream = DocumentStream(shards, vocab, self.bos, self.eos)
        is_cut_once = once or self.shuffle == "rows"
        padding = vocab.special.get("[PAD]", 0) if is_cut_once else None
        return PackedDocuments(self, stream, seed, padding)


class PackedDocuments(Packed):
    """A corpus as rows of packed documents; see `Documents`.

    Args:
        settings: the packing.
        stream: the documents.
        seed: seed of the order of rows.
        padding: fills the last row of text that is cut once; None if each epoch is cut anew.
    """

    def __init__(
        self, settings: Documents, stream: DocumentStream, seed: int, padding: int | None = None
    ) -> None:
        stream.require_tokens(settings.length, "a row")
        self._settings = settings
        self._stream = stream
        self._endless = EndlessStream(stream, seed, shuffles=padding is None)
        self._seed = seed
        self._padding = padding
        self.tokens_per_epoch = len(stream)
        whole, rest = divmod(len(stream), settings.length)
        self.rows_per_epoch = whole + (padding is not None and rest > 0)

    def rows(self, numbers: Array) -> Rows:
        numbers = np.asarray(numbers, dtype=np.int64)
        batch, length = len(numbers), self._settings.length
        begins = self._order(numbers) * length
        starts, sizes, which = self._endless.spans(begins, np.full_like(begins, length))
        pieces = self._stream.read(starts, sizes)

        # Number the documents of each row, and the positions within them.
        shape = (batch, length)
        ids = pieces.ids.reshape(shape)
        next_token = self._next_token(begins)
        if self._settings.document_mask:
            row = which[pieces.spans]
            before = np.searchsorted(row, np.arange(batch))  # pieces before each row's first
            documents = np.repeat(np.arange(len(row)) - before[row], pieces.lengths)
            starts = np.repeat(np.cumsum(pieces.lengths) - pieces.lengths, pieces.lengths)
            documents = documents.reshape(shape)
            positions = (np.arange(batch * length) - starts).reshape(shape)
        else:
            documents = np.zeros(shape, np.int64)
            positions = np.broadcast_to(np.arange(length), shape).copy()
        if self._padding is not None:
            is_over = begins[:, None] + np.arange(length) >= len(self._stream)
            ids[is_over], documents[is_over], positions[is_over] = self._padding, -1, 0
        return Rows(ids, documents, positions, numbers, parts=(NextToken(next_token),))

    def _next_token(self, begins: Array) -> Array:
        """Return the token after the rows from `begins`, -1 for none; (rows,) int64."""
        after = begins + self._settings.length
        ones = np.ones_like(after)
        index, _, _ = self._endless.spans(after, ones)
        ids = self._stream.read(index, ones).ids
        has_next = np.ones(len(after), dtype=bool)
        if self._padding is not None:
            has_next = after < len(self._stream)
        if self._settings.document_mask:
            last, _, _ = self._endless.spans(after - 1, ones)
            documents = self._stream.documents_at(last)
            has_next &= (index == last + 1) & (documents == self._stream.documents_at(index))
        return np.where(has_next, ids, -1)

    def _order(self, numbers: Array) -> Array:
        """Return the row of the endless stream for each number in the order of training.

        Text that is cut once has the rows of the first epoch alone.
        """
        per_epoch = self.rows_per_epoch
        epochs, rows = np.divmod(numbers, per_epoch)
        seed = mix(np.array([self._seed]).astype(np.uint64))
        for epoch in np.unique(epochs):
            is_in = epochs == epoch
            key = int(mix(seed + np.uint64(epoch))[0])
            rows[is_in] = permute(rows[is_in], per_epoch, key)
        return rows if self._padding is not None else epochs * per_epoch + rows
