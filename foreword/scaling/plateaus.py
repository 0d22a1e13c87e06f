"""Where the curve of each size flattens, and whether smaller sizes flatten sooner.

The losses of a size by tokens D, at one learning rate, are fitted by E + B / D^b, of least relative
squares. A doubling of D takes the share s(D) = -(dL / d log2 D) / L off the loss, which falls with
D; the plateau is the D at which it has come down to a threshold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foreword.errors import UserError
from foreword.formatting import quantity
from foreword.scaling.law import ends
from foreword.scaling.runs import ONCE, Runs
from foreword.types import Array

EXPONENTS = np.geomspace(0.02, 2.5, 400)
DOUBLINGS = 8  # of the tokens, before the last measurement, that are fitted
FEWEST = 4  # measurements of a curve, which has three values
FEWEST_SIZES = 3  # of a trend
FEWEST_SEEDS = 3  # that are drawn again; of fewer the residuals are
FAR_OFF = 0.01  # relative error, from which the form is said not to fit
TOO_WIDE = 4.0  # times the low end of a plateau, from which its high end tells little
SEED, RESAMPLES = 1, 1_000


@dataclass(frozen=True)
class Plateau:
    """The curve of a size.

    Attributes:
        family: of the size.
        parameters: of the size.
        tokens: of the measurements fitted, ascending, (measurements,).
        loss: of the measurements, (measurements,).
        values: E, B and b, with D in tokens, (3,); nan of too few measurements.
        drawn: those of the resampled measurements, (draws, 3).
        seeds: number of runs measured.
        error: root of the mean squared relative residual.
        threshold: share of the loss that a doubling takes off at the plateau.
        mark: what is wrong; "" if nothing is.
    """

    family: str
    parameters: float
    tokens: Array
    loss: Array
    values: Array
    drawn: Array
    seeds: int
    error: float
    threshold: float = math.nan
    mark: str = ""

    @property
    def last_slope(self) -> float:
        """The share that a doubling takes off at the last measurement."""
        return float(slopes(self.values[None], self.tokens[-1])[0])

    @property
    def plateau(self) -> float:
        """The tokens at which the curve flattens; inf if it never does."""
        return float(plateaus(self.values[None], self.threshold)[0])

    @property
    def is_reached(self) -> bool:
        """Whether the plateau lies between the first and the last measurement."""
        return bool(0.999 * self.tokens[0] <= self.plateau <= 1.001 * self.tokens[-1])

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the plateau; an end of inf if it may never be reached."""
        found = np.sort(plateaus(self.drawn, self.threshold))
        found = found[~np.isnan(found)]
        if not len(found):
            return None
        low, high = np.quantile(found, [0.025, 0.975], method="nearest")
        return float(low), float(high)

    def at(self, threshold: float) -> Plateau:
        """Return it for a threshold, marked if that is not reached."""
        found, mark = replace(self, threshold=threshold), self.mark
        if not mark and found.plateau > 1.001 * self.tokens[-1]:
            mark = f"not reached by {quantity(self.tokens[-1])} tokens"
        elif not mark and not found.is_reached:
            mark = f"flatter from {quantity(self.tokens[0])} tokens on"
        elif not mark and self.error > FAR_OFF:
            mark = "the measurements do not follow the form"
        elif not mark and (ends := found.interval) and ends[1] > TOO_WIDE * ends[0]:
            mark = "hardly determined: a wide interval"
        return replace(found, mark=mark)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        plateau, interval = self.plateau, self.interval or (math.nan, math.nan)
        numbers = {
            "plateau": plateau,
            "low": interval[0],
            "high": interval[1],
            "per_parameter": plateau / self.parameters,
            **dict(zip(("E", "B", "b"), map(float, self.values), strict=True)),
            "last_slope": self.last_slope,
            "error": self.error,
        }
        return {
            "family": self.family,
            "parameters": self.parameters,
            "measurements": len(self.tokens),
            "seeds": self.seeds,
            "last_tokens": float(self.tokens[-1]),
            **{name: value if math.isfinite(value) else None for name, value in numbers.items()},
            "is_reached": self.is_reached,
            "mark": self.mark,
        }


@dataclass(frozen=True)
class Trend:
    """How the plateau changes with size: tokens as a power of the parameters.

    Attributes:
        exponent: of the parameters; nan of too few sizes that reach their plateau.
        interval: 95 %, over measurements and sizes drawn again.
        sizes: number of sizes that reach it, unmarked.
    """

    exponent: float
    interval: tuple[float, float] | None
    sizes: int

    @property
    def verdict(self) -> str:
        """Whether smaller sizes flatten sooner, in words."""
        unknown = "whether smaller sizes flatten sooner cannot be told"
        if self.interval is None:
            return (
                f"{unknown}: sizes that reach the threshold within their curves: {self.sizes}, of "
                f"{FEWEST_SIZES} needed"
            )
        low, high = self.interval
        power = f"plateau as parameters^{self.exponent:.2f} ({low:.2f} to {high:.2f})"
        if low <= 0 <= high:
            return f"{unknown}: {power}"
        return f"smaller sizes flatten {'sooner' if low > 0 else 'later'}: {power}"


def slopes(values: Array, tokens: float | Array) -> Array:
    """Return the share of the loss that a doubling takes off, of curves, (curves, 3)."""
    e, b, exponent = values.T
    reducible = b * tokens**-exponent
    share: Array = math.log(2) * exponent * reducible / (e + reducible)
    return share


def plateaus(values: Array, threshold: float) -> Array:
    """Return the tokens at which curves, (curves, 3), come down to a threshold: 0 if they begin
    below it, inf if they never do, (curves,)."""
    e, b, exponent = values.T
    steep = math.log(2) * exponent - threshold  # of a curve without E
    with np.errstate(all="ignore"):
        tokens = (b * steep / (threshold * e)) ** (1 / exponent)
    found: Array = np.where(np.isnan(values[:, 0]), np.nan, np.where(steep <= 0, 0.0, tokens))
    return np.where(b == 0, 0.0, found)


def fit_curves(tokens: Array, loss: Array, weights: Array) -> Array:
    """Return E, B and b of least squares, (draws, 3); E and B are not below 0.

    Args:
        tokens: (measurements,).
        loss: of each draw, (draws, measurements).
        weights: of the squares, (draws, measurements).
    """
    unit = float(np.exp(np.log(tokens).mean()))
    x = (tokens / unit) ** -EXPONENTS[:, None]  # (exponents, measurements)
    base = loss.mean()
    y = loss - base  # so that sums of squares keep their digits
    w = weights.sum(1)[:, None]
    wx, wxx = weights @ x.T, weights @ (x * x).T
    wy, wyy = ((weights * of).sum(1)[:, None] for of in (y, y * y))
    wxy = (weights * y) @ x.T
    with np.errstate(all="ignore"):
        b = (w * wxy - wx * wy) / (w * wxx - wx * wx)
        b = np.where(np.isfinite(b) & (b > 0), b, 0.0)
        e = (wy - b * wx) / w
        # Where E would be below 0 it is 0.
        alone = (wxy + base * wx) / wxx
        is_low = e < -base
        e, b = np.where(is_low, -base, e), np.where(is_low, alone, b)
        squares = wyy - 2 * (e * wy + b * wxy) + e * e * w + 2 * e * b * wx + b * b * wxx
    best = np.nanargmin(squares, 1)
    rows = np.arange(len(loss))
    exponent = EXPONENTS[best]
    return np.stack([e[rows, best] + base, b[rows, best] * unit**exponent, exponent], 1)


def find_plateaus(
    families: Sequence[Runs], threshold: float | None = None, resamples: int = RESAMPLES
) -> list[Plateau]:
    """Return the plateau of each size of families, and those of too few measurements, marked.

    Args:
        families: measurements, at one learning rate.
        threshold: share of the loss that a doubling takes off; default: the lowest that all sizes
            reach.
        resamples: number of draws, for the intervals.

    Raises:
        UserError: no size has enough measurements.
    """
    once = [runs.where(runs.epochs <= ONCE) for runs in families]
    curves = [
        _curve(runs.where(runs.parameters == size), resamples)
        for runs in once
        for size in np.unique(runs.parameters)
    ]
    fitted = [curve for curve in curves if not curve.mark]
    if not fitted:
        most = max((len(curve.tokens) for curve in curves), default=0)
        raise UserError(
            f"{families[0].where_read}a curve needs {FEWEST} measurements of a size, of text read "
            f"once; there are {most} at most: set train.evaluations higher, or give --losses train"
        )
    if threshold is None:
        highest = max(curve.last_slope for curve in fitted)
        digits = 10.0 ** (1 - math.floor(math.log10(highest))) if highest > 0 else 1e3
        threshold = math.ceil(max(highest, 1e-3) * digits) / digits
    return [curve.at(threshold) for curve in curves]


def _curve(runs: Runs, resamples: int) -> Plateau:
    """Return the fitted curve of a size."""
    order = np.argsort(runs.tokens, kind="stable")
    runs = runs.where(order[runs.tokens[order] >= runs.tokens.max() / 2**DOUBLINGS])
    tokens, loss = runs.tokens, runs.loss
    names, run = np.unique(runs.run, return_inverse=True)
    # Rows without runs or checkpoints are runs of their own: then the curve is of all of them.
    seeds = len(names) if len(names) < len(run) else 1
    name = runs.family, float(runs.parameters[0]), tokens, loss
    if len(np.unique(tokens)) < FEWEST:
        mark = f"measurements: {len(tokens)}, of {FEWEST} needed"
        return Plateau(*name, np.full(3, np.nan), np.empty((0, 3)), seeds, math.nan, mark=mark)
    weights = loss[None] ** -2
    values = fit_curves(tokens, loss[None], weights)
    fitted = values[0, 0] + values[0, 1] * tokens ** -values[0, 2]
    residuals = loss / fitted - 1
    rng = np.random.default_rng(SEED)
    if seeds >= FEWEST_SEEDS:
        counts = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples)
        drawn = fit_curves(tokens, np.repeat(loss[None], resamples, 0), weights * counts[:, run])
    else:
        spread = math.sqrt(len(loss) / (len(loss) - 3)) * (residuals - residuals.mean())
        noise = spread[rng.integers(len(loss), size=(resamples, len(loss)))]
        drawn = fit_curves(tokens, fitted * (1 + noise), np.repeat(weights, resamples, 0))
    error = float(np.sqrt(np.mean(residuals**2)))
    return Plateau(*name, values[0], drawn, seeds, error)


def trend_of(found: Sequence[Plateau]) -> Trend:
    """Return the power of the parameters that the plateau of a family's sizes goes with."""
    reached = [one for one in found if one.is_reached and not one.mark]
    if len(reached) < FEWEST_SIZES:
        return Trend(math.nan, None, len(reached))
    x = np.log([one.parameters for one in reached])
    y = np.log([one.plateau for one in reached])
    with np.errstate(divide="ignore"):
        drawn = np.log(np.stack([plateaus(one.drawn, one.threshold) for one in reached], 1))
    # Draw sizes too: how they scatter around the power counts.
    chosen = np.random.default_rng(SEED).integers(len(x), size=drawn.shape)
    drawn = np.take_along_axis(drawn, chosen, 1)
    sizes = x[chosen]
    with np.errstate(all="ignore"):
        powers = _power(sizes, drawn)
    interval = ends(powers)
    return Trend(float(_power(x[None], y[None])[0]), interval, len(reached))


def _power(x: Array, y: Array) -> Array:
    """Return the slope of least squares of each row; nan of one x alone."""
    x, y = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    slope: Array = (x * y).sum(1) / np.where((square := (x * x).sum(1)) > 1e-9, square, np.nan)
    return slope
