"""Margins between two ways of answering the same examples, with their intervals.

Each example is answered by both, so that its difficulty cancels: a margin of paired answers has a
narrower interval than two accuracies (Miller 2024, "Adding error bars to evals").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import t

from foreword.evaluation.statistics import LEVEL
from foreword.types import Array


@dataclass(frozen=True)
class Margin:
    """How much more often one way of answering is correct than another.

    Attributes:
        low: lower end of the 95 % interval.
        high: upper end.
        seeds: seeds of the first; with one, the interval is over examples alone.
        p: two-sided p-value of no difference; None where nothing varies, or of older results.
    """

    name: str
    over: str
    difference: float
    low: float
    high: float
    seeds: int
    p: float | None = None


def margin(name: str, first: Array, over: str, second: Array, *, is_paired: bool = True) -> Margin:
    """Return the margin of one way of answering over another.

    The interval is for other examples of the same kind and other seeds. It adds the variance of the
    paired differences over the examples and that over the seeds: of their differences where both
    have as many, since a seed draws the same examples to train on for both; else of each side's
    accuracies. Few seeds tell little of their variance, so it is Student's t with the degrees of
    freedom of the sum (Satterthwaite 1946). The chance in a single answer is in both parts, so the
    interval is a little wide rather than narrow.

    Args:
        first: how far it is correct, (seeds, examples) float64, for at least two examples; nan for
            a seed that diverged.
        second: how far that is correct, for the same examples and any number of seeds.
        is_paired: whether equal seeds of both have something in common, the examples to train on.
    """
    sides = [correct[~np.isnan(correct[:, 0])] for correct in (first, second)]
    is_paired &= len(first) == len(second) == len(sides[0]) == len(sides[1])
    first, second = sides
    differences = first.mean(axis=0) - second.mean(axis=0)
    by_seed = [correct.mean(axis=1) for correct in (first, second)]
    if is_paired:
        by_seed = [by_seed[0] - by_seed[1]]
    parts = [
        (float(values.var(ddof=1)) / len(values), len(values) - 1)
        for values in (differences, *by_seed)
        if len(values) > 1
    ]
    variance = sum(part for part, _ in parts)
    mean = float(differences.mean())
    if variance == 0.0:
        return Margin(name, over, mean, mean, mean, len(first))
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    error = math.sqrt(variance)
    half = float(t.ppf((1 + LEVEL) / 2, freedom)) * error
    low, high = max(mean - half, -1.0), min(mean + half, 1.0)
    p = 2 * float(t.sf(abs(mean) / error, freedom))
    return Margin(name, over, mean, low, high, len(first), p)


def margins(correct: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Return the margins of the first of several ways of answering over each other, as tables.

    Args:
        correct: by name, as for `margin`; none if there are fewer than two examples.
    """
    names = list(correct)
    if not names or correct[names[0]].shape[1] < 2:
        return []
    first = correct[names[0]]
    return [asdict(margin(names[0], first, other, correct[other])) for other in names[1:]]


def lines(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what `margins` returned as lines of text."""
    if not tables:
        return []
    name = tables[0]["name"]
    over = "and seeds" if tables[0]["seeds"] > 1 else "alone, since there is one seed"
    head = f"'{name}' in points of accuracy, with 95 % intervals over examples {over}:"
    return [head, *(f"  {points(Margin(**table))} over '{table['over']}'" for table in tables)]


def points(of: Margin) -> str:
    """Return a margin and its interval in points."""
    return f"{100 * of.difference:+.1f} ({100 * of.low:+.1f} to {100 * of.high:+.1f})"
