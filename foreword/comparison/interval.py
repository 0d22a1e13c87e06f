"""Means and their confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval.

    Attributes:
        mean: mean of the values.
        half_width: half the interval's width; nan for one value.
        count: number of values.
    """

    mean: float
    half_width: float
    count: int

    def __str__(self) -> str:
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
