"""Whole pairs of a text and its translation, as many in a row as fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from foreword.data.document_stream import ranges
from foreword.data.packing._binned import PackedPieces
from foreword.data.packing._contract import Packing
from foreword.data.rng import permute
from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.settings.ranges import LARGEST
from foreword.types import Array, Rows, Vocab

ENDS = 2  # positions reserved in each pair for the ends of its sides


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


class PackedParallel(PackedPieces):
    """A corpus as rows of pairs; see `Parallel`.

    Every epoch has all pairs and equally many rows: best fit depends only on sizes, so epochs
    differ in which pair of a size goes where, and in the order of the rows.

    Attributes:
        notes: a line on the pairs that were cut, where there are any.
    """

    def __init__(self, settings: Parallel, shards: Shards, vocab: Vocab, seed: int) -> None:
        _require_pairs(shards)
        super().__init__(settings.length, shards, vocab, seed)
        lengths = np.asarray(shards.sequence_lengths, np.int64).reshape(-1, 2)
        is_pair = (lengths > 0).all(1)
        self._starts = shards.sequence_starts[:-1].reshape(-1, 2)[is_pair]
        self._lengths = _cut(lengths[is_pair], settings.length - ENDS)  # (pairs, 2)
        was_cut = int((self._lengths != lengths[is_pair]).any(1).sum())
        self.notes = [f"{was_cut:,} pairs longer than a row are cut"] if was_cut else []
        self.tokens_per_epoch = int((self._lengths.sum(1) + ENDS).sum())
        self._require_row()
        self.rows_per_epoch = len(self._epoch(0).order)

    def _pieces(self, key: int) -> tuple[Array, Array]:
        """Return the numbers of the pairs in a random order, and their sizes with their ends."""
        order = permute(np.arange(len(self._lengths)), len(self._lengths), key)
        return order, self._lengths[order].sum(1) + ENDS

    def _order(self, rows: int, key: int) -> Array:
        return np.argsort(permute(np.arange(rows), rows, key ^ 0xB))

    def _write(self, into: Rows, pieces: Array, row: Array) -> None:
        assert into.segments is not None
        at = self._place(into, self._lengths[pieces].sum(1), row)
        for side in range(2):
            starts, lengths = self._starts[pieces, side], self._lengths[pieces, side]
            cells, _ = ranges(at, lengths)
            into.ids.reshape(-1)[cells] = np.take(self._shards.tokens, ranges(starts, lengths)[0])
            into.segments.reshape(-1)[cells] = side
            at = at + lengths


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
