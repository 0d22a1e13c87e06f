"""Bin packing: pieces of different lengths into few rows."""

from __future__ import annotations

import numpy as np

from foreword.types import Array


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
