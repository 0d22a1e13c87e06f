"""The optimal number of tokens for each budget: isoFLOP minima, the lower envelope, power laws.

Approaches 1 and 2 of Hoffmann et al. 2022. Both ask the runs of a budget for the best one; they
need no form of the loss, but lie between the sizes that were tried. A parabola is symmetric and
the loss around its minimum is not, so its minimum is off even without noise (`isoflop_bias` in
`fit.py` says by how much); Akima's interpolation (as in Porian et al. 2024) follows the points, and
their noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import Akima1DInterpolator

from foreword.scaling.runs import FEWEST_SIZES, TOGETHER
from foreword.types import Array

FINE = 2_001  # places at which an interpolation is evaluated


@dataclass(frozen=True)
class PowerLaw:
    """The optimal tokens of a budget: 10^log10_intercept * FLOPs^exponent; nan if unknown."""

    exponent: float = math.nan
    log10_intercept: float = math.nan

    @classmethod
    def through(cls, flops: Sequence[float] | Array, tokens: Sequence[float] | Array) -> PowerLaw:
        """Return the law of least squares in logarithms; unknown for fewer than two budgets."""
        x, y = np.log10(np.asarray(flops, float)), np.log10(np.asarray(tokens, float))
        if len(x) < 2 or np.ptp(x) < 1e-9:
            return cls()
        slope = float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
        return cls(slope, float(y.mean() - slope * x.mean()))

    def tokens(self, flops: float) -> float:
        """Return the optimal tokens of a budget."""
        return float(10 ** (self.log10_intercept + self.exponent * math.log10(flops)))


@dataclass(frozen=True)
class Minimum:
    """The best run of a budget.

    Attributes:
        flops: of the budget.
        parabola: tokens at the vertex; nan if there is none between the sizes tried.
        akima: tokens at the minimum of the interpolation; nan as above.
        curve: the parabola's three values by log10 of the tokens, the square's first; empty without
            one.
        mark: what is wrong, in words; "" if nothing is.
    """

    flops: float
    parabola: float
    akima: float
    curve: tuple[float, ...]
    mark: str = ""


def minimum(flops: float, tokens: Array, loss: Array, weights: Array, fewest: int) -> Minimum:
    """Return the best number of tokens of one budget.

    Args:
        flops: of the budget.
        tokens: of its runs, (runs,).
        loss: (runs,).
        weights: how often each run counts, (runs,); of 0 it is left out.
        fewest: sizes below which there is no minimum.
    """
    x = np.log10(tokens)
    sizes, which = np.unique(np.round(x[weights > 0], 9), return_inverse=True)
    if len(sizes) < fewest:
        return Minimum(flops, math.nan, math.nan, (), f"{len(sizes)} sizes, of {fewest} needed")
    w, y = weights[weights > 0].astype(float), loss[weights > 0]
    means = np.bincount(which, w * y) / np.bincount(which, w)
    best = int(means.argmin())
    if np.ptp(means) == 0:
        return Minimum(flops, math.nan, math.nan, (), "all sizes have one loss: no minimum")
    if best in (0, len(sizes) - 1):
        # The fewest tokens are those of the largest model.
        end = "largest" if best == 0 else "smallest"
        falls = "falls" if best == 0 else "rises"
        text = f"the {end} size is the best, so the loss {falls} with size: no minimum"
        return Minimum(flops, math.nan, math.nan, (), text)
    centre = sizes.mean()
    a, b, c = np.polyfit(x[weights > 0] - centre, y, 2, w=np.sqrt(w))
    vertex = centre - b / (2 * a) if a > 0 else math.nan
    curve = (float(a), float(b - 2 * a * centre), float(a * centre**2 - b * centre + c))
    fine = np.linspace(sizes[0], sizes[-1], FINE)
    lowest = fine[np.argmin(Akima1DInterpolator(sizes, means)(fine))] if len(sizes) > 3 else vertex
    mark = ""
    if not sizes[0] < vertex < sizes[-1]:
        vertex, mark = math.nan, "the parabola has no minimum between the sizes"
    return Minimum(flops, float(10**vertex), float(10**lowest), curve, mark)


def minima(
    flops: Array, tokens: Array, loss: Array, budgets: Sequence[Array], weights: Array | None = None
) -> list[Minimum]:
    """Return the minimum of each budget.

    Args:
        flops: (runs,).
        tokens: (runs,).
        loss: (runs,).
        budgets: the runs of each budget.
        weights: how often a resampled table holds each run, (runs,); of such a table three sizes
            are enough.
    """
    drawn = np.ones(len(loss)) if weights is None else weights
    fewest = FEWEST_SIZES if weights is None else 3
    return [
        minimum(float(np.exp(np.log(flops[of]).mean())), tokens[of], loss[of], drawn[of], fewest)
        for of in budgets
    ]


def law_of_minima(found: Sequence[Minimum], method: str) -> PowerLaw:
    """Return the power law through the minima of a method, `parabola` or `akima`."""
    pairs = [(m.flops, getattr(m, method)) for m in found]
    known = [(flops, tokens) for flops, tokens in pairs if not math.isnan(tokens)]
    return PowerLaw.through([f for f, _ in known], [t for _, t in known])


@dataclass(frozen=True)
class Envelope:
    """The runs below which no run of at most the same FLOPs lies.

    Attributes:
        order: the runs by FLOPs, (runs,).
        reach: for each of them, the number of runs of at most 1.05 times its FLOPs, (runs,).
    """

    order: Array
    reach: Array

    @classmethod
    def of(cls, flops: Array) -> Envelope:
        """Return what an envelope of runs needs, once for all draws."""
        order = np.argsort(flops, kind="stable")
        reach = np.searchsorted(flops[order], TOGETHER * flops[order], side="right")
        return cls(order, reach)

    def items(self, loss: Array, drawn: Array | None = None) -> Array:
        """Return the runs on the envelope; of those drawn, by truth values, if these are given."""
        ordered = loss[self.order]
        if drawn is not None:
            ordered = np.where(drawn[self.order], ordered, np.inf)
        least = np.minimum.accumulate(ordered)
        on_it: Array = self.order[np.isfinite(ordered) & (ordered <= least[self.reach - 1])]
        return on_it
