"""Confidence intervals, all at one level: of shares, of means, of whatever can be drawn again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import stats

from foreword.types import Array

LEVEL = 0.95  # of every interval
SEED, DRAWS = 1, 2_000
TOGETHER = 1_000_000  # indices drawn at once
NO_INTERVAL = "no interval: a score that all draws share; other examples may still differ"

Ends = tuple[float, float] | tuple[None, None]  # of an interval; None where there is none


def wilson(correct: float, count: int) -> tuple[float, float]:
    """Return the Wilson score interval of a share, which holds for shares near 0 and 1 too.

    Args:
        correct: number of successes; a tie may count one half.
        count: number of trials, at least 1.

    Reference: Wilson 1927.
    """
    z = float(stats.norm.ppf((1 + LEVEL) / 2))
    share = correct / count
    middle = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    low = (middle - half) / scale if correct > 0 else 0.0  # without rounding errors at the ends
    high = (middle + half) / scale if correct < count else 1.0
    return low, high


def bootstrap(statistic: Callable[[Array], float], count: int, draws: int | None = None) -> Ends:
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
) -> list[Ends]:
    """Return the percentile interval of each of several statistics of the same draws.

    A draw for which a statistic is nan is left out of its interval. There is none if all are, or if
    all draws agree, which says nothing of other examples.

    Args:
        statistics: takes the indices of a draw, (count,) int64.
        count: number of items drawn from, and number drawn.
        draws: number of draws; default: `DRAWS`.
    """
    drawn = _drawn(count, DRAWS if draws is None else draws)
    values = np.array([statistics(indices) for indices in drawn], float)
    return [_percentiles(column[~np.isnan(column)]) for column in values.T]


def _percentiles(values: Array) -> Ends:
    tail = (1 - LEVEL) / 2
    low, high = map(float, np.quantile(values, [tail, 1 - tail])) if len(values) else (0.0, 0.0)
    is_point = math.isclose(low, high, rel_tol=1e-9, abs_tol=1e-12)
    return (None, None) if is_point else (low, high)


def _drawn(count: int, draws: int) -> Iterator[Array]:
    """Yield the indices of each draw; many small draws are made at once, which is faster."""
    rng = np.random.default_rng(SEED)
    together = max(1, TOGETHER // max(1, count))
    for first in range(0, draws, together):
        yield from rng.integers(0, count, (min(together, draws - first), count))


def correlations(one: Array, other: Array) -> tuple[float, float]:
    """Return Pearson's and Spearman's correlation, nan if one side is constant or has one value.

    Args:
        one: (values,).
        other: (values,).
    """
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return math.nan, math.nan
    both = stats.pearsonr(one, other), stats.spearmanr(one, other)
    return float(both[0].statistic), float(both[1].statistic)


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval.

    Attributes:
        mean: mean of the values; nan if one is undefined.
        half_width: half the interval's width; nan for one value.
        count: number of values.
    """

    mean: float
    half_width: float
    count: int

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "–"
        return (
            f"{self.mean:.3f}"
            if math.isnan(self.half_width)
            else f"{self.mean:.3f} ± {self.half_width:.3f}"
        )


def half_width_of_share(count: int) -> float:
    """Return half the width of the 95 % interval of an accuracy on `count` examples.

    This is the widest case, an accuracy of 0.5, by the normal approximation of the binomial.
    """
    return float(stats.norm.ppf((1 + LEVEL) / 2)) / (2 * math.sqrt(count))


def interval(values: Sequence[float]) -> Interval:
    """Return the mean with Student's t interval at 95 %, for a few roughly normal values."""
    count = len(values)
    mean = float(np.mean(values))
    if count < 2:
        return Interval(mean, math.nan, count)
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    return Interval(mean, float(stats.t.ppf((1 + LEVEL) / 2, count - 1)) * error, count)


@dataclass(frozen=True)
class Spread:
    """Mean, sample standard deviation and number of some values; the deviation of one is nan."""

    mean: float
    deviation: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of values."""
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
        return cls(float(np.mean(values)), deviation, len(values))


def pooled_deviation(samples: Sequence[Spread]) -> float | None:
    """Return the standard deviation within samples, pooled; None if none has two values."""
    samples = [sample for sample in samples if sample.count > 1]
    degrees = sum(sample.count - 1 for sample in samples)
    squares = sum(sample.deviation**2 * (sample.count - 1) for sample in samples)
    return math.sqrt(squares / degrees) if degrees else None


@dataclass(frozen=True)
class Signal:
    """How far a score tells models apart.

    Attributes:
        ratio: deviation between the models' means over the standard error of one, which is about 1
            where the models do not differ.
        p: p-value of the F test that all have one mean.
    """

    ratio: float
    p: float


def signal(models: Sequence[Spread]) -> Signal | None:
    """Return the signal to noise of a score; None with fewer than two models or unknown noise.

    The noise is pooled over the models, as in a one-way analysis of variance.

    Args:
        models: the spread of each model's score over seeds, or over the items that it is a mean of.
    """
    models = [model for model in models if not math.isnan(model.mean)]
    noise = pooled_deviation(models)
    if len(models) < 2 or noise is None:
        return None
    if not noise:  # which says nothing of differences
        return Signal(0.0, 1.0) if len({model.mean for model in models}) == 1 else None
    means, counts = np.array([(model.mean, model.count) for model in models]).T
    squares = counts * (means - np.average(means, weights=counts)) ** 2
    between = float(squares.sum()) / (len(models) - 1)
    f = between / noise**2
    degrees = len(models) - 1, int(counts.sum()) - len(models)
    return Signal(math.sqrt(f), float(stats.f.sf(f, *degrees)))


def spreads_on_same_items(values: Array) -> list[Spread]:
    """Return the spread of each model's values without what all models share of an item.

    Some items are harder for all models, which does not blur the differences between them.

    Args:
        values: (models, items).
    """
    models, items = values.shape
    means = values.mean(axis=1)
    if models < 2 or items < 2:
        return [Spread(float(mean), math.nan, 1) for mean in means]
    rest = values - values.mean(axis=0) - (means - means.mean())[:, None]
    deviation = math.sqrt(float((rest**2).sum()) / ((models - 1) * (items - 1)))
    return [Spread(float(mean), deviation, items) for mean in means]


@dataclass(frozen=True)
class Difference:
    """The difference of two models' scores, and whether it may be chance.

    Attributes:
        one: number of the first model.
        other: number of the second.
        mean: score of the first minus that of the second.
        p: two-sided p-value of one mean for both.
    """

    one: int
    other: int
    mean: float
    p: float


def paired_differences(values: Array) -> list[Difference]:
    """Return the difference of each pair of models, by t tests in randomised blocks.

    What all models share of a seed or an item cancels. The noise of what is left is taken from all
    models, which few seeds need, by the median of their variances; a model that varies more has its
    own, and where it deviates twice as much, only its own degrees of freedom (Welch 1947). Of two
    models this is the paired t test. In simulations at most 5 % of families have an error, and up
    to 10 % where one of eight models deviates ten times as much and there are two seeds. None
    without noise.

    Args:
        values: (models, seeds or items).
    """
    models, blocks = values.shape
    if models < 2 or blocks < 2:
        return []
    # The variance of each model, and of a usual one.
    means, degrees = values.mean(axis=1), (models - 1) * (blocks - 1)
    rest = values - values.mean(axis=0) - (means - means.mean())[:, None]
    own = (rest**2).sum(axis=1) * models / degrees
    median = float(np.median(own)) * (blocks - 1) / float(stats.chi2.median(blocks - 1))
    usual = min(median, float(own.mean()))
    noise, own_degrees = np.maximum(own, usual), np.where(own > 4 * usual, blocks - 1, degrees)
    if math.sqrt(noise.max()) <= 1e-12 * float(np.abs(values).max()):
        return []
    found = []
    for pair in combinations(range(models), 2):
        variances = noise[list(pair)]
        shared = variances.sum() ** 2 / (variances**2 / own_degrees[list(pair)]).sum()
        mean, error = float(means[pair[0]] - means[pair[1]]), math.sqrt(variances.sum() / blocks)
        t = abs(mean) / error if error else (math.inf if mean else 0.0)
        found.append(Difference(*pair, mean, 2 * float(stats.t.sf(t, min(degrees, shared)))))
    return found


def unpaired_differences(models: Sequence[Spread]) -> list[Difference]:
    """Return the difference of each pair of models by Welch's t test; none without noise."""
    found = []
    for one, other in combinations(range(len(models)), 2):
        sides = models[one], models[other]
        if min(side.count for side in sides) < 2 or not sum(side.deviation for side in sides) > 0:
            return []
        numbers = [number for side in sides for number in (side.mean, side.deviation, side.count)]
        p = float(stats.ttest_ind_from_stats(*numbers, equal_var=False).pvalue)
        found.append(Difference(one, other, sides[0].mean - sides[1].mean, p))
    return found


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number: at most 5 % of families have an error below 0.05.

    Reference: Holm 1979.
    """
    corrected, largest = [0.0] * len(ps), 0.0
    for rank, n in enumerate(sorted(range(len(ps)), key=lambda n: ps[n])):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[n]))
        corrected[n] = largest
    return corrected


def signal_notes(signals: Mapping[str, Signal | None], models: str, noise: str) -> list[str]:
    """Return a line with the signal to noise of each score for which it is known, or none.

    Args:
        signals: by the names of the scores.
        models: what is told apart, such as "cells".
        noise: what the standard errors are over.
    """
    known = {name: one for name, one in signals.items() if one}
    parts = [
        f"{name} {one.ratio:.1f}" + f", cannot tell the {models} apart" * (one.p > 1 - LEVEL)
        for name, one in known.items()
    ]
    if not parts:
        return []
    return [
        f"signal to noise (deviation between {models} over the standard error {noise}; about 1 if "
        f"they do not differ): {'; '.join(parts)}"
    ]


def difference(one: Spread, other: Spread) -> Interval:
    """Return the difference of two means with Welch's t interval at 95 %, for unequal deviations.

    Reference: Welch 1947.
    """
    mean, count = one.mean - other.mean, min(one.count, other.count)
    if count < 2 or math.isnan(one.deviation + other.deviation):
        return Interval(mean, math.nan, count)
    squares = [sample.deviation**2 / sample.count for sample in (one, other)]
    if not sum(squares):
        return Interval(mean, 0.0, count)
    degrees = sum(squares) ** 2 / sum(
        square**2 / (sample.count - 1) for square, sample in zip(squares, (one, other), strict=True)
    )
    quantile = float(stats.t.ppf((1 + LEVEL) / 2, degrees))
    return Interval(mean, quantile * math.sqrt(sum(squares)), count)


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
