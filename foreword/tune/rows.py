"""Examples packed into rows: several share one, the document mask keeps them apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foreword.data.rows import positions_within
from foreword.layouts.encoder import within
from foreword.nn.masks import Causal
from foreword.tune.contracts import Encoded
from foreword.tune.framing import Frame
from foreword.types import Array, Batch, to_tensors

# Rows are at least this wide where examples are shorter: short ones find a place together.
WIDTH = 128
TOKENS_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 16}


@dataclass(frozen=True)
class SpotBatch:
    """Rows, and where in them an answer is wanted.

    Attributes:
        batch: what the backbone reads.
        rows: row of each spot, (spots,) int64.
        columns: its place in the row, (spots,) int64.
        numbers: the example it belongs to, (spots,) int64.
        targets: what is right there, (spots,).
    """

    batch: Batch
    rows: Any
    columns: Any
    numbers: Any
    targets: Any

    def to(self, device: Any) -> SpotBatch:
        """The same as tensors on `device`."""
        return to_tensors(self, device)


@dataclass(frozen=True)
class Examples:
    """Encoded examples with their targets.

    Attributes:
        encoded: the examples.
        targets: of each example's spots, (examples,) or a list of (spots,).
        frame: how they were framed.
    """

    encoded: Sequence[Encoded]
    targets: Any
    frame: Frame

    def __len__(self) -> int:
        return len(self.encoded)

    def batches(self, numbers: Array, device: str) -> Iterator[SpotBatch]:
        """The examples `numbers`, packed into rows, so many rows at once as memory bears.

        On CUDA the rows have one width and their count is a power of two, since kernels are
        compiled per shape; elsewhere they are as narrow as the examples allow.
        """
        lengths = [len(self.encoded[n].ids) for n in numbers]
        is_cuda = device == "cuda"
        width = self.frame.length if is_cuda else max(*lengths, min(WIDTH, self.frame.length))
        rows = [[int(numbers[k]) for k in row] for row in first_fit(lengths, width)]
        at_once = max(1, TOKENS_AT_ONCE.get(device, 1 << 14) // width)
        for start in range(0, len(rows), at_once):
            part = rows[start : start + at_once]
            if is_cuda:
                part += [[]] * ((1 << (len(part) - 1).bit_length()) - len(part))
            else:
                width = max(sum(len(self.encoded[n].ids) for n in row) for row in part)
            yield self._pack(part, width)

    def _pack(self, rows: list[list[int]], width: int) -> SpotBatch:
        shape = (len(rows), width)
        ids, segments = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        documents = np.full(shape, -1, np.int64)
        spots: list[tuple[int, int, int]] = []  # row, column, example
        targets: list[Array] = []
        for r, row in enumerate(rows):
            column = 0
            for d, n in enumerate(row):
                example = self.encoded[n]
                there = slice(column, column + len(example.ids))
                ids[r, there], segments[r, there] = example.ids, example.segments
                documents[r, there] = d
                first = column if self.frame.start is None else d
                spots += [(r, first + int(spot), n) for spot in example.spots]
                targets.append(np.atleast_1d(self.targets[n]))
                column = there.stop
        spot_rows, columns, numbers = np.asarray(spots, np.int64).T.copy()
        seen = within(documents, documents)
        batch = Batch(
            ids=ids,
            positions=positions_within(documents),
            mask=Causal() & seen if self.frame.is_causal else seen,
            segments=segments if self.frame.has_segments else None,
        )
        if self.frame.start is not None:
            batch = _with_decoder(batch, documents, self.frame.start, max(map(len, rows)))
        return SpotBatch(batch, spot_rows, columns, numbers, np.concatenate(targets))


def _with_decoder(source: Batch, documents: Array, start: int, width: int) -> Batch:
    """The decoder's side: one start token per example, which sees that example's source.

    Rows with fewer examples repeat their first one's start token: it sees keys, as padding might
    not, and nothing reads it.
    """
    shape = (len(documents), width)
    own = np.arange(width)[None, :].repeat(len(documents), axis=0)
    own = np.where(own <= documents.max(axis=1, keepdims=True), own, documents[:, :1])
    return Batch(
        ids=np.full(shape, start, np.int64),
        positions=np.zeros(shape, np.int64),
        mask=Causal() & within(own, own),
        source=source,
        cross_mask=within(own, documents),
    )


def first_fit(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Puts each item, in the order given, into the first row of `width` with room for it."""
    rows: list[list[int]] = []
    room: list[int] = []
    for n, length in enumerate(lengths):
        r = next((r for r, left in enumerate(room) if length <= left), len(rows))
        if r == len(rows):
            rows.append([])
            room.append(width)
        rows[r].append(n)
        room[r] -= length
    return rows
