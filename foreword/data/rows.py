"""Positions of tokens within the documents of a row."""

from __future__ import annotations

import numpy as np

from foreword.types import Array


def positions_within(documents: Array) -> Array:
    """Return the number of earlier tokens of the same document in the row, (batch, length)."""
    column = np.arange(documents.shape[1])
    if (documents[:, 1:] == documents[:, :-1]).all():
        return np.broadcast_to(column, documents.shape).copy()
    # Sort tokens by document, count within each, and put the counts back.
    order = np.argsort(documents, axis=1, kind="stable")
    ordered = np.take_along_axis(documents, order, axis=1)
    is_new = np.ones_like(ordered, dtype=bool)
    is_new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    start = np.maximum.accumulate(np.where(is_new, column, 0), axis=1)
    positions = np.empty_like(documents)
    np.put_along_axis(positions, order, column - start, axis=1)
    return positions
