"""Contiguous rows: each row of the batch is a stream through its own part of the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from foreword.data.document_stream import DocumentStream
from foreword.data.endless_stream import EndlessStream
from foreword.data.packing._contract import Packed, Packing
from foreword.data.shards import Shards
from foreword.settings.ranges import Count
from foreword.types import Array, NextToken, Rows, Vocab


@dataclass(frozen=True)
class Stream(Packing):
    """Contiguous text for models with a memory: each row continues its stream's previous one.

    The text, each document followed by `eos`, is cut into `batch` equal parts, one stream each;
    stream b reads part b, step by step, and starts over at its end; with `shuffle = "documents"` it
    goes on with part b of the documents in a new order. Row number p is step p // batch of stream
    p % batch. Rows are not shuffled, and documents attend to each other. The last position of a row
    predicts the first token of the stream's next one, so that every token is predicted. Text that
    is read once ends with padding in each stream; after its part a stream shows the first token of
    the next stream, so that this is predicted too.

        text   1 2 3 4 5 6 7 8 9 10 11 12     batch 2, length 3
        step 0   [1 2 3] [7  8  9]
        step 1   [4 5 6] [10 11 12]
        step 2   [1 2 3] [7  8  9]

    In a mixture each source is one stream, and stream b of the batch reads stretches of them.

    Attributes:
        length: tokens in a row.
        eos: the special token after each document, "" for none.
        shuffle: what comes in a new order in each epoch after the first: `none` or `documents`.

    Also called: contiguous, stateful.
    """

    is_contiguous: ClassVar[bool] = True

    length: Count = 128
    eos: str = "</s>"
    shuffle: Literal["none", "documents"] = "none"

    def open(
        self, shards: Shards, vocab: Vocab, seed: int, batch: int, *, once: bool = False
    ) -> PackedStream:
        """Return the corpus as rows; that of the first epoch does not depend on the seed.

        Args:
            shards: the documents.
            vocab: to look up the special token.
            seed: seed of the orders of documents.
            batch: number of streams: rows per step.
            once: whether each stream reads its part once, to the end.

        Raises:
            UserError: a stream is shorter than a row, or the tokenizer lacks the special token.
        """
        stream = DocumentStream(shards, vocab, "", self.eos)
        padding = vocab.special.get("[PAD]", 0) if once else None
        endless = EndlessStream(stream, seed, shuffles=self.shuffle == "documents" and not once)
        return PackedStream(self.length, stream, endless, batch, padding)


class PackedStream(Packed):
    """A corpus as streams of contiguous rows; see `Stream`.

    Args:
        length: tokens in a row.
        stream: the documents.
        endless: their orders.
        batch: number of streams.
        padding: fills the streams of text that is read once; None for text read repeatedly.
    """

    def __init__(
        self,
        length: int,
        stream: DocumentStream,
        endless: EndlessStream,
        batch: int,
        padding: int | None = None,
    ) -> None:
        purpose = f"a row for each of the {batch} streams" if batch > 1 else "a row"
        stream.require_tokens(length * batch, purpose)
        self._length = length
        self._stream, self._endless = stream, endless
        self._padding = padding
        # Bounds of the streams' parts: sizes differ by at most one token, and none is lost.
        bounds = np.arange(batch + 1) * len(stream) // batch
        is_shared = np.arange(batch) < batch - 1  # with the next stream, which cannot predict it
        self._starts, self._stops = bounds[:-1], bounds[1:] + is_shared * (padding is not None)
        self.tokens_per_epoch = len(stream)
        self.rows_per_epoch = len(stream) // length
        if padding is not None:
            self.rows_per_epoch = int(-(-(self._stops - self._starts).max() // length)) * batch

    def rows(self, numbers: Array) -> Rows:
        numbers = np.asarray(numbers, dtype=np.int64)
        step, part = np.divmod(numbers, len(self._starts))
        size = (self._stops - self._starts)[part]
        shape = (len(numbers), self._length)
        offset = step * self._length  # within all that the stream reads
        is_over = offset[:, None] + np.arange(self._length + 1) >= size[:, None]
        # A row across the end of the part continues with the next epoch's: two spans each.
        first = np.minimum(self._length, size - offset % size)
        spans = np.stack([offset, offset + first], axis=1)
        sizes = np.stack([first, self._length - first], axis=1)
        ids = self._read(spans.ravel(), sizes.ravel(), part.repeat(2)).reshape(shape)
        next_token = self._read(offset + self._length, np.ones_like(offset), part)
        positions = np.broadcast_to(np.arange(self._length), shape).copy()
        documents = np.zeros(shape, np.int64)
        if self._padding is not None:
            next_token[is_over[:, -1]] = -1
            is_over = is_over[:, :-1]
            ids[is_over], documents[is_over], positions[is_over] = self._padding, -1, 0
        return Rows(ids, documents, positions, numbers, parts=(NextToken(next_token),))

    def _read(self, offsets: Array, lengths: Array, parts: Array) -> Array:
        """Return the tokens of spans of streams, each within an epoch; (tokens,) int64.

        Args:
            offsets: the first token of each within all that its stream reads, (spans,) int64.
            lengths: tokens in each, (spans,) int64.
            parts: the stream of each, (spans,) int64.
        """
        epochs, offsets = np.divmod(offsets, (self._stops - self._starts)[parts])
        starts = epochs * len(self._stream) + self._starts[parts] + offsets
        sources, sizes, _ = self._endless.spans(starts, lengths)
        return self._stream.read(sources, sizes).ids
