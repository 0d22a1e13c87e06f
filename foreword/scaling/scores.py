"""A score in two steps: the loss by the law, and the score as a sigmoid of the loss.

A score of a task moves only in a part of the losses: floor + (top - floor) / (1 + exp(k (L - M))).
The largest budget's scores are forecast by both steps, its losses taken from the direct fit, and
by the second alone, from the losses that it reached; the difference is the first step's error.

Reference: Bhagia et al. 2024, Establishing Task Scaling Laws via Compute-Efficient Model Ladders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import spearmanr

from foreword.scaling.law import ends, losses
from foreword.scaling.runs import Runs
from foreword.types import Array

VALUES = ("floor", "top", "steepness", "middle")
FEWEST = 6  # scores, to fit the four values
MOST_RESAMPLES = 200
STEEP = (1.0, 4.0, 16.0)  # starts of k, over the range of the losses
FLATTEST, STEEPEST = 0.05, 200.0  # limits of k, over the same
MOST_STEPS = 100  # of a descent; a flat score has no minimum to reach
SEED = 2


@dataclass(frozen=True)
class ScoreForecast:
    """The score of a run of the largest budget, which no fit has seen.

    Attributes:
        item: its number in the runs.
        forecast: by both steps.
        low: lower end of its interval, over resampled tables and the spread around the sigmoid.
        high: its upper end.
        from_loss: by the second step alone.
    """

    item: int
    forecast: float
    low: float
    high: float
    from_loss: float


@dataclass(frozen=True)
class ScoreFit:
    """A score as a sigmoid of the loss.

    Attributes:
        values: floor, top, steepness k and middle M, (4,).
        intervals: of each, over resampled tables.
        spread: standard deviation of the fitted runs' scores around the sigmoid.
        rank: Spearman's correlation of loss and score, over all runs.
        rank_p: its p-value.
        forecasts: of the largest budget's runs.
        mark: what is wrong; "" if nothing is.
    """

    values: Array
    intervals: dict[str, tuple[float, float] | None]
    spread: float
    rank: float
    rank_p: float
    forecasts: tuple[ScoreForecast, ...]
    mark: str = ""

    def at(self, loss: Array) -> Array:
        """Return the scores at losses."""
        return sigmoid(self.values, loss)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            **dict(zip(VALUES, map(float, self.values), strict=True)),
            "interval": self.intervals,
            "spread": self.spread,
            "rank": self.rank,
            "rank_p": self.rank_p,
            "forecasts": [vars(one) for one in self.forecasts],
            "mark": self.mark,
        }


def sigmoid(values: Array, loss: Array) -> Array:
    """Return floor + (top - floor) / (1 + exp(k (L - M))), of values (..., 4) and losses (n,)."""
    floor, top, steepness, middle = np.moveaxis(values[..., None], -2, 0)
    share = 1 / (1 + np.exp(np.clip(steepness * (loss - middle), -500, 500)))
    return np.asarray(floor + (top - floor) * share)


def fit_scores(
    runs: Runs, fitted: Array, resampled: Array, draws: Array
) -> tuple[ScoreFit | None, str]:
    """Return the score as a function of the loss, and what a reader should know.

    None if the table has no scores, or too few.

    Args:
        runs: of a family.
        fitted: whether the law reads each run, (runs,).
        resampled: E, A, B, alpha, beta of the law for each resampled table, (tables, 5).
        draws: how often each of these tables holds each fitted run, (tables, fitted runs).
    """
    if runs.score is None:
        return None, ""
    is_scored = ~np.isnan(runs.score)
    seen = runs.where(fitted & is_scored)
    assert seen.score is not None
    if len(seen.loss) < FEWEST or len(np.unique(seen.score)) < 2:
        return None, (
            f"scores are not fitted: {len(seen.loss)} runs below the largest budget have one; "
            f"{FEWEST} that differ are needed"
        )
    values = _descend(seen.loss, seen.score, np.ones(len(seen.loss)))
    weights = draws[:MOST_RESAMPLES, is_scored[fitted]]
    drawn = np.array([_descend(seen.loss, seen.score, one, values) for one in weights])
    drawn = drawn.reshape(-1, len(VALUES))
    residuals = seen.score - sigmoid(values, seen.loss)
    spread = float(np.sqrt((residuals**2).sum() / max(1, len(residuals) - len(VALUES))))
    every = runs.where(is_scored)
    rank = spearmanr(every.loss, every.score)

    # The largest budget, by both steps of the same resampled tables.
    noise = np.random.default_rng(SEED).normal(0, spread, len(drawn))
    forecasts = []
    for item in np.flatnonzero(~fitted & is_scored):
        n, d = runs.parameters[[item]], runs.tokens[[item]]
        expected = losses(resampled[: len(drawn)], n, d)[:, None]  # (tables, 1)
        both = sigmoid(drawn, expected)[:, 0] + noise
        low, high = ends(both) or (np.nan, np.nan)
        centre = float(np.median(both - noise))
        alone = float(sigmoid(values, runs.loss[[item]])[0])
        forecasts.append(ScoreForecast(int(item), centre, low, high, alone))
    intervals = dict(zip(VALUES, map(ends, drawn.T), strict=True))
    mark = ""
    if rank.statistic >= 0 or rank.pvalue > 0.05:
        mark = "the score does not follow the loss: no forecast is to be trusted"
    elif abs(values[1] - values[0]) < 2 * spread:
        mark = "the score moves less than it scatters"
    rank_of = float(rank.statistic), float(rank.pvalue)
    return ScoreFit(values, intervals, spread, *rank_of, tuple(forecasts), mark), ""


def _descend(loss: Array, score: Array, weights: Array, start: Array | None = None) -> Array:
    """Return the values of least squares, from a start or from several."""
    range_, low, high = float(np.ptp(loss)) or 1.0, float(score.min()), float(score.max())
    height = (high - low) or 1e-6
    steep = np.array([FLATTEST, STEEPEST]) / range_
    bounds = (
        [low - 3 * height, 0.0, steep[0], loss.min() - 3 * range_],
        [high, 8 * height, steep[1], loss.max() + 3 * range_],
    )
    roots = np.sqrt(weights)

    def residuals(theta: Array) -> Array:
        plain = np.array([theta[0], theta[0] + theta[1], *theta[2:]])
        return np.asarray(roots * (sigmoid(plain, loss) - score))

    if start is None:
        middles = np.quantile(loss, [0.1, 0.5, 0.9])
        starts = [np.array([low, height, k / range_, m]) for k in STEEP for m in middles]
    else:
        starts = [np.array([start[0], start[1] - start[0], *start[2:]])]
    found = [
        least_squares(
            residuals, np.clip(theta, *bounds), bounds=bounds, x_scale="jac", max_nfev=MOST_STEPS
        )
        for theta in starts
    ]
    theta = min(found, key=lambda each: each.cost).x
    return np.array([theta[0], theta[0] + theta[1], *theta[2:]])
