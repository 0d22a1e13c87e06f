"""The smallest difference between two cells that a comparison can detect."""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, stats

from foreword.comparison.grid import GridTask
from foreword.comparison.results import PER_EXAMPLE, Results
from foreword.evaluation.statistics import LEVEL, pooled_deviation
from foreword.tuning.scores import metric_name

POWER = 0.8
SHARES = 200  # at which an average over the Beta distribution is taken
# Deviation between seeds before any is known: about that of CoLA's and RTE's scores over seeds of
# fine-tuning small models.
ASSUMED = 0.02


def detectable_by_seeds(deviation: float, seeds: int) -> float:
    """Return the difference of two means whose interval excludes zero with a power of 80 %.

    The interval is Welch's, as in `interval.difference`, of two samples that deviate equally. Their
    share of the sum of both variances is Beta-distributed and decides the degrees of freedom; the
    sum and the difference make a noncentral t.

    Args:
        deviation: standard deviation between seeds.
        seeds: number of each cell's values, 2 or more.
    """
    half = (seeds - 1) / 2
    shares = stats.beta.ppf((np.arange(SHARES) + 0.5) / SHARES, half, half)
    limits = stats.t.ppf((1 + LEVEL) / 2, (seeds - 1) / (shares**2 + (1 - shares) ** 2))

    def excess_power(shift: float) -> float:
        # An interval that excludes zero on the wrong side is rarer than 1 in 10,000.
        return float(np.mean(stats.nct.sf(limits, 2 * (seeds - 1), shift))) - POWER

    shift = optimize.brentq(excess_power, 1.0, 30.0)
    return float(shift) * deviation * math.sqrt(2 / seeds)


def detectable_on_examples(metric: str, count: int) -> float | None:
    """Return the difference of two scores on `count` drawn examples detectable with 80 % power.

    This is the widest case of independent errors; None for a metric without a known variance.
    """
    if metric not in PER_EXAMPLE:
        return None
    quantiles = stats.norm.ppf((1 + LEVEL) / 2) + stats.norm.ppf(POWER)
    return float(quantiles) * math.sqrt(2 * PER_EXAMPLE[metric] / count)


def power_notes(results: Results) -> list[str]:
    """Return which difference between two cells is detectable, a line per task.

    The deviation between seeds is that of the finished cells, or assumed if there are none.
    """
    return [line for task in results.comparison.grid.tasks if (line := _power_note(results, task))]


def _power_note(results: Results, task: GridTask) -> str:
    grid = results.comparison.grid
    metric = results.metric(task) or ("accuracy" if task.task.judge.has_classes else "")
    name = f"{task.name}, {metric_name(metric)}"
    seeds, of = (grid.seeds, "pretraining") if grid.seeds > 1 else (task.tune.seeds, "fine-tuning")
    if seeds < 2:
        return f"{name}: one seed has no interval, so no difference is detectable."
    observed = pooled_deviation(results.spreads(task))
    if not metric or (observed is None and metric not in (*PER_EXAMPLE, "f1")):
        return ""
    deviation = ASSUMED if observed is None else observed
    by_seeds = detectable_by_seeds(deviation, seeds)
    source = "assumed to deviate" if observed is None else "which deviate"
    text = (
        f"{name}: a difference of {by_seeds:.3f} between two cells is detectable ({LEVEL:.0%} "
        f"interval excludes zero in {10 * POWER:.0f} of 10 cases) with {seeds} seeds of {of} each, "
        f"{source} by {deviation:.3f}"
    )
    count = len(results.comparison.examples[task.name].dev)
    by_examples = detectable_on_examples(metric, count)
    if by_examples is None:
        return f"{text}."
    combined = math.hypot(by_seeds, by_examples)
    return f"{text}; to hold for examples other than these {count:,}, up to {combined:.3f}."
