"""Rows that follow one another: each lane of the batch reads its own part of the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foreword.data.shards import Shards
from foreword.data.wrapped import Wrapped
from foreword.types import Array, Rows, Vocab


@dataclass(frozen=True)
class Stream:
    """Contiguous text for models with a memory: what a row ends with, the lane's next one goes on.

    The text, each document followed by `after`, is cut into as many equal parts as the batch has
    lanes; lane b reads part b, step by step, and begins it again at its end. Row number p is step
    p // batch of lane p % batch. Rows are not shuffled and documents not kept apart. The last place
    of a row predicts the first token of the lane's next one, so that every token is predicted.

        text   1 2 3 4 5 6 7 8 9 10 11 12     batch 2, length 3
        step 0   [1 2 3] [7  8  9]
        step 1   [4 5 6] [10 11 12]
        step 2   [1 2 3] [7  8  9]

    Attributes:
        length: tokens in a row.
        after: the special token after each document, "" for none.
    """

    is_contiguous: ClassVar[bool] = True

    length: int = 128
    after: str = "</s>"

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"length: must be at least 1, got {self.length}")

    def open(self, shards: Shards, vocab: Vocab, seed: int, batch: int) -> PackedStream:
        """The corpus as rows; their order does not depend on the seed.

        Args:
            shards: the documents.
            vocab: to look up the special token.
            seed: not used.
            batch: number of lanes: rows per step.

        Raises:
            UserError: a lane is shorter than a row, or the tokenizer lacks the special token.
        """
        del seed
        return PackedStream(self.length, Wrapped(shards, vocab, "", self.after), batch)


class PackedStream:
    """A corpus as lanes of contiguous rows; see `Stream`."""

    def __init__(self, length: int, stream: Wrapped, batch: int) -> None:
        stream.need(length * batch, f"a row for each of the {batch} lanes")
        self._length = length
        self._stream = stream
        # Where the lanes' parts begin, and the end: they differ by a token at most, none is lost.
        self._bounds = np.arange(batch + 1) * len(stream) // batch
        self.tokens_per_epoch = len(stream)
        self.rows_per_epoch = len(stream) // length

    def rows(self, numbers: Array) -> Rows:
        """The rows with these places in the order of training, (batch,) int64."""
        numbers = np.asarray(numbers, dtype=np.int64)
        step, lane = np.divmod(numbers, len(self._bounds) - 1)
        start, size = self._bounds[lane], np.diff(self._bounds)[lane]
        place = step * self._length % size
        # A row that runs over the end of the lane goes on at its beginning: two spans each.
        first = np.minimum(self._length, size - place)
        spans = np.stack([start + place, start], axis=1)
        sizes = np.stack([first, self._length - first], axis=1)
        pieces = self._stream.read(spans.ravel(), sizes.ravel())
        following = self._stream.read(start + (place + self._length) % size, np.ones_like(place))
        shape = (len(numbers), self._length)
        positions = np.broadcast_to(np.arange(self._length), shape).copy()
        ids, documents = pieces.ids.reshape(shape), np.zeros(shape, np.int64)
        return Rows(ids, documents, positions, numbers, following=following.ids)
