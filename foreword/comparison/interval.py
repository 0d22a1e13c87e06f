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
