"""Bin packing: pieces of different lengths into few rows, anew in each epoch."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from foreword.data.document_stream import ranges
from foreword.data.packing._contract import Packed
from foreword.data.rng import mix
from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.types import Array, Rows, Vocab

CACHED_EPOCHS = 2  # epochs whose rows are cached


class Epoch(NamedTuple):
    """The pieces of an epoch in bins.

    Attributes:
        pieces: the pieces, bin by bin; indexed by an array, they give some of them.
        first: the first piece of each bin, and the end; (rows + 1,) int64.
        order: the bin of each row, (rows,) int64.
    """

    pieces: Any
    first: Array
    order: Array


class PackedPieces(Packed):
    """A corpus as rows of whole pieces, each a document of its own with positions from 0.

    Args:
        length: tokens in a row.
        shards: the documents.
        vocab: their vocabulary.
        seed: seed of the order of rows.
    """

    def __init__(self, length: int, shards: Shards, vocab: Vocab, seed: int) -> None:
        self._length, self._shards, self._vocab = length, shards, vocab
        self._seed = mix(np.array([seed]).astype(np.uint64))
        self._padding = vocab.special.get("[PAD]", 0)
        self._epochs: dict[int, Epoch] = {}

    @abstractmethod
    def _pieces(self, key: int) -> tuple[Any, Array]:
        """Return the pieces of the epoch with a random key, and their sizes; (pieces,) int64."""

    @abstractmethod
    def _order(self, rows: int, key: int) -> Array:
        """Return the bin of each row of an epoch, (rows,) int64."""

    @abstractmethod
    def _write(self, into: Rows, pieces: Any, row: Array) -> None:
        """Write pieces into their rows; pieces of a row are adjacent."""

    def _find(self, numbers: Array) -> tuple[Array, ...]:
        """Return the epoch of each row and its number in it."""
        return np.divmod(numbers, self.rows_per_epoch)

    def rows(self, numbers: Array) -> Rows:
        numbers = np.asarray(numbers, dtype=np.int64)
        ids = np.full((len(numbers), self._length), self._padding, dtype=np.int64)
        documents = np.full_like(ids, -1)
        rows = Rows(
            ids, documents, np.zeros_like(ids), numbers, np.zeros_like(ids), self._parts(ids)
        )
        epochs, in_epoch = self._find(numbers)
        for number in np.unique(epochs):
            where = np.flatnonzero(epochs == number)
            epoch = self._epoch(int(number))
            bins = epoch.order[in_epoch[where]]
            pieces, group = ranges(epoch.first[bins], np.diff(epoch.first)[bins])
            self._write(rows, epoch.pieces[pieces], where[group])
        if ids.max(initial=0) >= self._vocab.size:
            raise UserError(
                f"{self._shards.prefix}: holds token {ids.max():,}, but the tokenizer has only "
                f"{self._vocab.size:,}; the shards were made with another one"
            )
        return rows

    def _parts(self, ids: Array) -> tuple[Any, ...]:
        """Return further parts of rows with these ids."""
        return ()

    def _require_row(self) -> None:
        """Check that the text fills a row."""
        if self.tokens_per_epoch < self._length:
            raise UserError(
                f"{self._shards.prefix}: only {self.tokens_per_epoch:,} tokens, but a row needs "
                f"{self._length:,}; give more text, or set a smaller packing.length"
            )

    def _place(self, into: Rows, sizes: Array, row: Array) -> Array:
        """Write documents and positions of pieces, one after the other in their rows.

        Returns:
            Where each begins in all rows together, (pieces,) int64.
        """
        is_first = np.ones(len(row), dtype=bool)
        is_first[1:] = row[1:] != row[:-1]
        first = np.maximum.accumulate(np.where(is_first, np.arange(len(row)), 0))
        before = np.cumsum(sizes) - sizes
        at = np.asarray(row * self._length + before - before[first])
        cells, which = ranges(at, sizes)
        into.documents.reshape(-1)[cells] = (np.arange(len(row)) - first)[which]
        into.positions.reshape(-1)[cells] = cells - at[which]
        return at

    def _epoch(self, number: int) -> Epoch:
        """Return an epoch's pieces in rows; the last epochs are cached."""
        if number not in self._epochs:
            key = int(mix(self._seed + np.uint64(number))[0])
            pieces, sizes = self._pieces(key)
            bins = into_bins(sizes, self._length)
            first = np.concatenate([[0], np.cumsum(np.bincount(bins))])
            order = self._order(len(first) - 1, key)
            epoch = Epoch(pieces[np.argsort(bins, kind="stable")], first, order)
            latest = sorted(self._epochs)[-(CACHED_EPOCHS - 1) :]
            self._epochs = {n: self._epochs[n] for n in latest} | {number: epoch}
        return self._epochs[number]


def into_bins(sizes: Array, length: int) -> Array:
    """Return the row of each piece: best-fit decreasing (Johnson 1973), by counting.

    Rows with equal room are interchangeable, and so are pieces of equal length; so the work grows
    with the square of `length`, not with the number of pieces.

    Args:
        sizes: tokens in each piece, 1 to `length`; (pieces,) int64.
        length: tokens in a row.

    Returns:
        (pieces,) int64, numbers from 0 without a gap.
    """
    bins = np.empty(len(sizes), dtype=np.int64)
    by_size = np.argsort(sizes, kind="stable")
    edges = np.searchsorted(sizes[by_size], np.arange(length + 2))
    # Longest first, pieces of one size at a time: into the fullest rows that have room, ...
    opened: list[list[Array]] = [[] for _ in range(length + 1)]  # rows by the room they have left
    rows = 0
    for size in range(length, 0, -1):
        pieces = by_size[edges[size] : edges[size + 1]]
        for room in range(size, length):
            if not len(pieces):
                break
            if not opened[room]:
                continue
            free = np.concatenate(opened[room])
            filled, opened[room] = free[: len(pieces)], [free[len(pieces) :]]
            bins[pieces[: len(filled)]] = filled
            opened[room - size].append(filled)
            pieces = pieces[len(filled) :]
        # ... and the rest into new rows.
        if len(pieces):
            numbers = rows + np.arange(len(pieces)) // (length // size)
            bins[pieces] = numbers
            fresh, pieces_per_row = np.unique(numbers, return_counts=True)
            rows += len(fresh)
            for count in np.unique(pieces_per_row):
                opened[length - int(count) * size].append(fresh[pieces_per_row == count])
    return bins
