"""Contiguous rows: each row of the batch is a stream through its own part of the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foreword.data.document_stream import DocumentStream
from foreword.data.packing._contract import Packed, Packing
from foreword.data.shards import Shards
from foreword.settings.ranges import Count
from foreword.types import Array, NextToken, Rows, Vocab


@dataclass(frozen=True)
class Stream(Packing):
    """Contiguous text for models with a memory: each row continues its stream's previous one.

    The text, each document followed by `eos`, is cut into `batch` equal parts, one stream each;
    stream b reads part b, step by step, and starts over at its end. Row number p is step
    p // batch of stream p % batch. Rows are not shuffled, and documents attend to each other. The
    last position of a row predicts the first token of the stream's next one, so that every token
    is predicted. Text that is read once ends with padding in each stream; after its part a stream
    shows the first token of the next stream, so that this is predicted too.

        text   1 2 3 4 5 6 7 8 9 10 11 12     batch 2, length 3
        step 0   [1 2 3] [7  8  9]
        step 1   [4 5 6] [10 11 12]
        step 2   [1 2 3] [7  8  9]

    In a mixture each source is one stream, and stream b of the batch reads stretches of them.

    Attributes:
        length: tokens in a row.
        eos: the special token after each document, "" for none.

    Also called: contiguous, stateful.
    """

    is_contiguous: ClassVar[bool] = True

    length: Count = 128
    eos: str = "</s>"

    def open(
        self, shards: Shards, vocab: Vocab, seed: int, batch: int, *, once: bool = False
    ) -> PackedStream:
        """Return the corpus as rows; their order does not depend on the seed.

        Args:
            shards: the documents.
            vocab: to look up the special token.
            seed: not used.
            batch: number of streams: rows per step.
            once: whether each stream reads its part once, to the end.

        Raises:
            UserError: a stream is shorter than a row, or the tokenizer lacks the special token.
        """
        del seed
        stream = DocumentStream(shards, vocab, "", self.eos)
        padding = vocab.special.get("[PAD]", 0) if once else None
        return PackedStream(self.length, stream, batch, padding)


class PackedStream(Packed):
    """A corpus as streams of contiguous rows; see `Stream`.

    Args:
        length: tokens in a row.
        stream: the documents.
        batch: number of streams.
        padding: fills the streams of text that is read once; None for text read repeatedly.
    """

    def __init__(
        self, length: int, stream: DocumentStream, batch: int, padding: int | None = None
    ) -> None:
        purpose = f"a row for each of the {batch} streams" if batch > 1 else "a row"
        stream.require_tokens(length * batch, purpose)
        self._length = length
        self._stream = stream
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
        start, size = self._starts[part], (self._stops - self._starts)[part]
        shape = (len(numbers), self._length)
        offset = step * self._length  # within the stream's part
        is_over = offset[:, None] + np.arange(self._length + 1) >= size[:, None]
        offset = offset % size
        # A row across the end of the part continues at its beginning: two spans each.
        first = np.minimum(self._length, size - offset)
        spans = np.stack([start + offset, start], axis=1)
        sizes = np.stack([first, self._length - first], axis=1)
        ids = self._stream.read(spans.ravel(), sizes.ravel()).ids.reshape(shape)
        after = start + (offset + self._length) % size
        next_token = self._stream.read(after, np.ones_like(after)).ids
        positions = np.broadcast_to(np.arange(self._length), shape).copy()
        documents = np.zeros(shape, np.int64)
        if self._padding is not None:
            next_token[is_over[:, -1]] = -1
            is_over = is_over[:, :-1]
            ids[is_over], documents[is_over], positions[is_over] = self._padding, -1, 0
        return Rows(ids, documents, positions, numbers, parts=(NextToken(next_token),))
