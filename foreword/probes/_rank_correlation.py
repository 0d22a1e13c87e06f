"""Spearman's rank correlation, where there is one."""

from __future__ import annotations

from scipy.stats import spearmanr

from foreword.types import Array


def rank_correlation(one: Array, other: Array) -> float | None:
    """Return Spearman's correlation; None if one is constant or there are fewer than three pairs.

    With two pairs it could only be 1 or -1.
    """
    if len(one) < 3 or any((values == values[0]).all() for values in (one, other)):
        return None
    return float(spearmanr(one, other).statistic)
