"""Whole pairs of a text and its translation, as many in a row as fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from foreword.data.document_stream import ranges
from foreword.data.packing._bins import into_bins
from foreword.data.packing._contract import Packed, Packing
from foreword.data.rng import mix, permute
from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.settings.ranges import LARGEST
from foreword.types import Array, Rows, Vocab

ENDS = 2  # positions reserved in each pair for the ends of its sides
CACHED_EPOCHS = 2  # epochs whose rows are cached


@dataclass(frozen=True)
class Parallel(Packing):
    """Pairs of parallel text, each whole: a source, which is segment 0, and its target, segment 1.

    Pairs are packed into new rows in each epoch. In the row, each pair is a document of its own,
    with positions from 0. One position per side is left free for the end that an objective adds.
    In a pair longer than a row the longer side is cut (each to half a row if both are longer); the
    number of cut pairs is reported.

        pairs      7 8 | 9,  4 | 5 6,  3 | 2        length 10
        ids        [ 7  8  9  4  5  6  0  0  0  0]  [ 3  2  0 ...
        documents  [ 0  0  0  1  1  1 -1 -1 -1 -1]  [ 0  0 -1 ...
        segments   [ 0  0  1  0  1  1  0  0  0  0]  [ 0  1  0 ...

    Attributes:
        length: tokens in a row, of both sides together.

    Also called: translation.
    """

    needs_pairs: ClassVar[bool] = True

    length: Annotated[int, Interval(ge=2 + ENDS, le=LARGEST)] = 128

    @property
    def max_text(self) -> int:
        """The most tokens of a pair: the ends of its sides have reserved positions."""
        return self.length - ENDS

    def open(
        self, shards: Shards, vocab: Vocab, seed: int, batch: int, *, once: bool = False
    ) -> PackedParallel:
        """Return the corpus as rows of pairs; their order depends on the seed alone.

        Raises:
            UserError: the text is not parallel, or shorter than a row.
        """
        del batch, once  # a row does not depend on them
        return PackedParallel(self, shards, vocab, seed)


@dataclass(frozen=True)
class _Epoch:
    """The pairs of an epoch, those of a row together.

    Attributes:
        pairs: their numbers, row by row, (pairs,) int64.
        first: the first of each row, and the end; (rows + 1,) int64.
    """

    pairs: Array
    first: Array

    def __len__(self) -> int:
        return len(self.first) - 1


class PackedParallel(Packed):
    """A corpus as rows of pairs; see `Parallel`.

    Attributes:
        notes: a line on the pairs that were cut, where there are any.
    """

    def __init__(self, settings: Parallel, shards: Shards, vocab: Vocab, seed: int) -> None:
        _require_pairs(shards)
        self._length, self._shards, self._vocab = settings.length, shards, vocab
        self._seed = mix(np.array([seed]).astype(np.uint64))
        self._padding = vocab.special.get("[PAD]", 0)
        lengths = np.asarray(shards.sequence_lengths, np.int64).reshape(-1, 2)
        is_pair = (lengths > 0).all(1)
        self._starts = shards.sequence_starts[:-1].reshape(-1, 2)[is_pair]
        self._lengths = _cut(lengths[is_pair], settings.length - ENDS)  # (pairs, 2)
        was_cut = int((self._lengths != lengths[is_pair]).any(1).sum())
        self.notes = [f"{was_cut:,} pairs longer than a row are cut"] if was_cut else []
        self.tokens_per_epoch = int((self._lengths.sum(1) + ENDS).sum())
        if self.tokens_per_epoch < settings.length:
            raise UserError(
                f"{shards.prefix}: only {self.tokens_per_epoch:,} tokens, but a row needs "
                f"{settings.length:,}; give more text, or set a smaller packing.length"
            )
        self._epochs: dict[int, _Epoch] = {}
        self.rows_per_epoch = len(self._epoch(0))

    def rows(self, numbers: Array) -> Rows:
        numbers = np.asarray(numbers, dtype=np.int64)
        shape = (len(numbers), self._length)
        ids = np.full(shape, self._padding, dtype=np.int64)
        documents = np.full(shape, -1, dtype=np.int64)
        positions, segments = np.zeros_like(ids), np.zeros_like(ids)
        rows = Rows(ids, documents, positions, numbers, segments)
        epochs, in_epoch = np.divmod(numbers, self.rows_per_epoch)
        for number in np.unique(epochs):
            where = np.flatnonzero(epochs == number)
            self._write(rows, self._epoch(int(number)), in_epoch[where], where)
        if ids.max(initial=0) >= self._vocab.size:
            raise UserError(
                f"{self._shards.prefix}: holds token {ids.max():,}, but the tokenizer has only "
                f"{self._vocab.size:,}; the shards were made with another one"
            )
        return rows

    def _write(self, into: Rows, epoch: _Epoch, in_epoch: Array, where: Array) -> None:
        """Write the pairs of some rows of an epoch, one after the other."""
        assert into.segments is not None
        counts = np.diff(epoch.first)[in_epoch]
        indices, group = ranges(epoch.first[in_epoch], counts)
        pairs = epoch.pairs[indices]
        begins = np.cumsum(counts) - counts  # of each row, among the pairs
        inside = np.arange(len(pairs)) - begins[group]  # the pair's number within its row
        sizes = self._lengths[pairs].sum(1)
        before = np.cumsum(sizes) - sizes
        at = where[group] * self._length + before - before[begins[group]]
        cells, which = ranges(at, sizes)
        into.documents.reshape(-1)[cells] = inside[which]
        into.positions.reshape(-1)[cells] = cells - at[which]
        for side in range(2):
            starts, lengths = self._starts[pairs, side], self._lengths[pairs, side]
            cells, _ = ranges(at, lengths)
            into.ids.reshape(-1)[cells] = np.take(self._shards.tokens, ranges(starts, lengths)[0])
            into.segments.reshape(-1)[cells] = side
            at = at + lengths

    def _epoch(self, number: int) -> _Epoch:
        """Return an epoch's pairs in rows; every epoch has all pairs and equally many rows.

        Best fit depends only on sizes, so epochs differ in which pair of a size goes where, and in
        the order of the rows.
        """
        if number not in self._epochs:
            key = int(mix(self._seed + np.uint64(number))[0])
            order = permute(np.arange(len(self._lengths)), len(self._lengths), key)
            bins = into_bins(self._lengths[order].sum(1) + ENDS, self._length)
            rows = int(bins.max()) + 1
            bins = permute(bins, rows, key ^ 0xB)
            first = np.concatenate([[0], np.cumsum(np.bincount(bins, minlength=rows))])
            epoch = _Epoch(order[np.argsort(bins, kind="stable")], first)
            latest = sorted(self._epochs)[-(CACHED_EPOCHS - 1) :]
            self._epochs = {n: self._epochs[n] for n in latest} | {number: epoch}
        return self._epochs[number]


def _require_pairs(shards: Shards) -> None:
    """Raise a UserError if a document is not a pair."""
    others = np.flatnonzero(np.diff(shards.document_index) != 2)
    if len(others):
        number = int(others[0])
        count = int(np.diff(shards.document_index)[number])
        raise UserError(
            f"{shards.prefix}: document {number + 1:,} has {count:,} sequences where a pair has "
            "two; packing 'parallel' requires parallel text: read.field=en and read.target=de with "
            "files NAME.en and NAME.de, or with two fields of JSON lines"
        )


def _cut(lengths: Array, room: int) -> Array:
    """Return the lengths of both sides (pairs, 2), cut to at most `room` tokens a pair."""
    least = np.minimum(lengths, [room // 2, room - room // 2])  # what a side gets in any case
    fits = lengths.sum(1, keepdims=True) <= room
    return np.where(fits, lengths, np.minimum(lengths, room - least[:, ::-1]))
