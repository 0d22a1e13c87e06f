"""The verdict on a claim from the numbers of its cells, by rule.

The claim's number is a weighted sum of means over seeds; its interval is Welch's t at 95 %. The
claim *holds* if the interval lies above what was to be exceeded, does *not hold* if it lies below,
and is *not shown* if it includes it. Then the power is told: what these seeds could show, and how
many would show a difference as large as the one seen.

A claim on quality is *not shown* either, whatever its interval, while a trained cell of it has not
begun: its held-out loss is not 3 % below that of token frequencies, so that a lead over it is one
of beginning sooner. Then a larger budget could show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, stats

from foreword.comparison.claim import Claim, ClaimTerm
from foreword.comparison.power import POWER
from foreword.evaluation.statistics import LEVEL, Spread

HOLDS, FAILS, NOT_SHOWN, MISSING = "holds", "does not hold", "not shown", "not measured"
MOST_SEEDS = 100

Values = Callable[[ClaimTerm], Sequence[float]]


@dataclass(frozen=True)
class Decision:
    """What an experiment says of a claim.

    Attributes:
        verdict: holds, does not hold, not shown, or not measured.
        number: the number that the claim is about; of ratios a factor.
        low: the lower end of its interval.
        high: the upper end.
        p: p-value, two-sided, of the number being what was to be exceeded.
        seeds: the fewest values of a cell.
        shows: how far from what was to be exceeded the number must be to be shown with these seeds,
            with a power of 80 %; of ratios a factor.
        needs: seeds of each cell that would show a number as far from it as this one is; None if
            more than 100.
        missing: the cells that have no value, or too few.
        bounds: the cells of which only upper bounds are known, where others have exact losses.
        not_begun: which cells have not begun, in words with their losses.
    """

    verdict: str
    number: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    seeds: int = 0
    shows: float = math.nan
    needs: int | None = None
    missing: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    not_begun: tuple[str, ...] = ()

    @property
    def is_decided(self) -> bool:
        """Whether it holds or does not."""
        return self.verdict in (HOLDS, FAILS)


def verdict(claim: Claim, values: Values, not_begun: tuple[str, ...] = ()) -> Decision:
    """Return the verdict on a claim.

    Args:
        claim: the claim.
        values: returns the values of a term, one for each seed.
        not_begun: which of its cells have not begun, in words.
    """
    found = _by_interval(claim, values)
    if not not_begun or found.verdict == MISSING:
        return found
    return replace(found, verdict=NOT_SHOWN, not_begun=not_begun)


def _by_interval(claim: Claim, values: Values) -> Decision:
    """Return the verdict by the interval of the claim's number alone."""
    # The spread of each term; logarithms where ratios are compared.
    weights, spreads, missing = [], [], []
    for weight, term in claim.weighted:
        known = [value for value in values(term) if not math.isnan(value)]
        if len(known) < 2 or (claim.ratio and min(known) <= 0):
            missing.append(str(term))
            continue
        weights.append(weight)
        spreads.append(Spread.of(np.log(known).tolist() if claim.ratio else known))
    if missing:
        return Decision(MISSING, missing=tuple(dict.fromkeys(missing)))
    number = sum(w * one.mean for w, one in zip(weights, spreads, strict=True))
    error, degrees = welch(weights, spreads)
    away, seeds = number - claim.threshold, min(one.count for one in spreads)
    scaled = math.exp if claim.is_factor else float
    if not error:  # counts, which are the same for every seed
        said = FAILS if away <= 0 else HOLDS
        end = scaled(number)
        return Decision(said, end, end, end, 0.0 if away else 1.0, seeds=seeds, shows=scaled(0.0))
    half = float(stats.t.ppf((1 + LEVEL) / 2, degrees)) * error
    said = HOLDS if away > half else FAILS if away < -half else NOT_SHOWN
    return Decision(
        said,
        scaled(number),
        low=scaled(number - half),
        high=scaled(number + half),
        p=2 * float(stats.t.sf(abs(away) / error, degrees)),
        seeds=seeds,
        shows=scaled(detectable(error, degrees)),
        needs=seeds_needed(abs(away), error * math.sqrt(seeds), degrees / max(1, seeds - 1)),
    )


def welch(weights: Sequence[float], spreads: Sequence[Spread]) -> tuple[float, float]:
    """Return the standard error of a weighted sum of means, and its degrees of freedom.

    Reference: Welch 1947, for two means with weights 1 and -1; Satterthwaite 1946.
    """
    squares = [
        (weight * one.deviation) ** 2 / one.count
        for weight, one in zip(weights, spreads, strict=True)
    ]
    total = sum(squares)
    if not total:
        return 0.0, math.inf
    shares = (s**2 / (one.count - 1) for s, one in zip(squares, spreads, strict=True))
    return math.sqrt(total), total**2 / sum(shares)


def detectable(error: float, degrees: float) -> float:
    """Return the distance from zero whose interval excludes it with a power of 80 %."""
    limit = float(stats.t.ppf((1 + LEVEL) / 2, degrees))

    def excess(shift: float) -> float:
        return float(stats.nct.sf(limit, degrees, shift)) - POWER

    return float(optimize.brentq(excess, 0.1, 100.0)) * error


def seeds_needed(away: float, deviation: float, degrees: float) -> int | None:
    """Return the seeds of each cell that show a distance with a power of 80 %; None if over 100.

    Args:
        away: the distance.
        deviation: standard error of the number with one seed of each cell.
        degrees: degrees of freedom that each seed after the first adds.
    """
    for seeds in range(2, MOST_SEEDS + 1):
        if detectable(deviation / math.sqrt(seeds), degrees * (seeds - 1)) <= away:
            return seeds
    return None
