"""95 % confidence intervals of what probes measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy.stats import norm

from foreword.types import Array

LEVEL = 0.95
SEED, DRAWS = 1, 2_000
TOGETHER = 1_000_000  # indices drawn at once


def wilson(correct: float, count: int) -> tuple[float, float]:
    """Return the Wilson score interval of a share, which holds for shares near 0 and 1 too.

    Args:
        correct: number of successes; a tie may count one half.
        count: number of trials, at least 1.

    Reference: Wilson 1927.
    """
    z = float(norm.ppf((1 + LEVEL) / 2))
    share = correct / count
    middle = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    low = (middle - half) / scale if correct > 0 else 0.0  # without rounding errors at the ends
    high = (middle + half) / scale if correct < count else 1.0
    return low, high


def bootstrap(
    statistic: Callable[[Array], float], count: int, draws: int | None = None
) -> tuple[float, float]:
    """Return the percentile interval of a statistic over draws with replacement.

    Args:
        statistic: takes the indices of a draw, (count,) int64.
        count: number of items drawn from, and number drawn.
        draws: number of draws; default: `DRAWS`.
    """
    (interval,) = bootstrap_each(lambda indices: [statistic(indices)], count, draws)
    return interval


def bootstrap_each(
    statistics: Callable[[Array], Sequence[float]], count: int, draws: int | None = None
) -> list[tuple[float, float]]:
    """Return the percentile interval of each of several statistics of the same draws.

    A draw for which a statistic is nan is left out of its interval; (nan, nan) if all are.

    Args:
        statistics: takes the indices of a draw, (count,) int64.
        count: number of items drawn from, and number drawn.
        draws: number of draws; default: `DRAWS`.
    """
    drawn = _drawn(count, DRAWS if draws is None else draws)
    values = np.array([statistics(indices) for indices in drawn], float)
    known = [column[~np.isnan(column)] for column in values.T]
    tail = (1 - LEVEL) / 2
    quantiles = (np.quantile(of, [tail, 1 - tail]) if len(of) else (math.nan,) * 2 for of in known)
    return [(float(low), float(high)) for low, high in quantiles]


def _drawn(count: int, draws: int) -> Iterator[Array]:
    """Yield the indices of each draw; many small draws are made at once, which is faster."""
    rng = np.random.default_rng(SEED)
    together = max(1, TOGETHER // max(1, count))
    for first in range(0, draws, together):
        yield from rng.integers(0, count, (min(together, draws - first), count))
