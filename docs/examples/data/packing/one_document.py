"""One document to a row, as an example of a packing in a plug-in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foreword.data.document_stream import DocumentStream, ranges
from foreword.data.packing._contract import Packed, Packing
from foreword.data.rng import mix, permute
from foreword.data.rows import positions_within
from foreword.data.shards import Shards
from foreword.settings.ranges import Count
from foreword.types import Array, Rows, Vocab


@dataclass(frozen=True)
class OneDocument(Packing):
    """Rows that hold one document each, padded; longer ones are cut into several rows.

        documents  7 8 9 | 4          length 4, </s> is 2, [PAD] is 0
        ids        [ 7  8  9  2]  [ 4  2  0  0]

    Attributes:
        length: tokens in a row.
        eos: the special token after each document, "" for none.
    """

    length: Count = 128
    eos: str = "</s>"

    def open(
        self, shards: Shards, vocab: Vocab, seed: int, batch: int, *, once: bool = False
    ) -> Packed:
        """Return the corpus as rows; each epoch has a random order of its own.

        Raises:
            UserError: the text is shorter than a row, or the tokenizer lacks a special token.
        """
        stream = DocumentStream(shards, vocab, "", self.eos)
        stream.require_tokens(self.length, "a row")
        has_end = bool(self.eos)
        starts = shards.document_starts + has_end * np.arange(len(shards) + 1)
        return DocumentPerRow(stream, starts, self.length, seed, vocab.special.get("[PAD]", 0))


class DocumentPerRow(Packed):
    """A corpus as rows of one document each.

    Args:
        stream: all documents, one after the other.
        starts: where each begins in the stream, and the end; (documents + 1,) int64.
        length: tokens in a row.
        seed: seed of the order.
        padding: id that fills a row.
    """

    def __init__(
        self, stream: DocumentStream, starts: Array, length: int, seed: int, padding: int
    ) -> None:
        self._stream, self._length, self._seed, self._padding = stream, length, seed, padding
        sizes = np.diff(starts)
        documents, number = ranges(np.zeros_like(sizes), -(-sizes // length))
        self._starts = starts[number] + documents * length  # of each row
        self._sizes = np.minimum(length, starts[number + 1] - self._starts)
        self.rows_per_epoch = len(self._starts)
        self.tokens_per_epoch = len(stream)

    def rows(self, numbers: Array) -> Rows:
        """Return the rows with these numbers in the order of training, (batch,) int64."""
        numbers = np.asarray(numbers, dtype=np.int64)
        epochs, chosen = np.divmod(numbers, self.rows_per_epoch)
        for epoch in np.unique(epochs):
            seed = mix(np.array([self._seed, epoch]).astype(np.uint64))
            is_in = epochs == epoch
            chosen[is_in] = permute(chosen[is_in], self.rows_per_epoch, int(seed[0] ^ seed[1]))
        sizes = self._sizes[chosen]
        is_text = np.arange(self._length) < sizes[:, None]
        ids = np.full(is_text.shape, self._padding, dtype=np.int64)
        ids[is_text] = self._stream.read(self._starts[chosen], sizes).ids
        documents = np.where(is_text, 0, -1)
        return Rows(ids, documents, positions_within(documents), numbers)
