"""Spearman's rank correlation, where there is one."""

from __future__ import annotations

import numpy as np

from foreword.types import Array


def rank_correlation(one: Array, other: Array) -> float | None:
    """Return Spearman's correlation; None if one is constant or there are fewer than three pairs.

    With two pairs it could only be 1 or -1. Intervals compute it thousands of times, for which
    scipy's is too slow.
    """
    if len(one) < 3 or any((values == values[0]).all() for values in (one, other)):
        return None
    if np.isnan(one).any() or np.isnan(other).any():
        return float("nan")
    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


def ranks(values: Array) -> Array:
    """Return the rank of each value, from 1; ties share their mean rank."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    means: Array = np.cumsum(counts) - (counts - 1) / 2
    return means[group]
