"""The best learning rate of each size and budget, and how it changes with width and budget."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class BestRate:
    """The rate at which a size ends lowest.

    Attributes:
        width: of the size.
        layers: of the size.
        flops: the budget.
        rate: the vertex of the parabola through the lowest of the rates tried and its neighbours,
            by the logarithm; the lowest itself at an edge.
        loss: the lowest loss.
        is_at_edge: whether the lowest is the first or the last rate tried, so that the best may lie
            beyond.
    """

    width: int
    layers: int
    flops: float
    rate: float
    loss: float
    is_at_edge: bool


@dataclass(frozen=True)
class RateRule:
    """The best rate by width and budget: `rate` * (width / 256)^by_width * (FLOPs / 1e13)^by_flops.

    Attributes:
        rate: at a width of 256 and 1e13 FLOPs.
        by_width: exponent; -1 is muP's for hidden matrices, 0 a rate that width leaves alone.
        by_flops: exponent; 0 where only one budget is known.
        spread: the typical factor between rule and best rates.
    """

    rate: float
    by_width: float
    by_flops: float
    spread: float

    def of(self, width: int, flops: float) -> float:
        """Return the rate of a width and budget, to three digits."""
        rate = self.rate * (width / 256) ** self.by_width * (flops / 1e13) ** self.by_flops
        return float(f"{rate:.3g}")


def best_rates(rows: Sequence[Mapping[str, Any]]) -> list[BestRate]:
    """Return the best rate of each size and budget, by width and FLOPs.

    Args:
        rows: with `width`, `layers`, `budget`, `lr` and `loss`, one for each run; seeds of a rate
            are averaged.
    """
    groups: dict[tuple[int, int, float], dict[float, list[float]]] = defaultdict(dict)
    for row in rows:
        size = int(row["width"]), int(row["layers"]), float(row["budget"])
        groups[size].setdefault(float(row["lr"]), []).append(float(row["loss"]))
    found = []
    for (width, layers, flops), losses in sorted(groups.items()):
        rates = sorted(losses)
        means = [float(np.mean(losses[rate])) for rate in rates]
        best = int(np.argmin(means))
        rate, is_inside = rates[best], 0 < best < len(rates) - 1
        if is_inside:
            x, y = np.log(rates[best - 1 : best + 2]), means[best - 1 : best + 2]
            a, b, _ = np.polyfit(x, y, 2)
            rate = float(np.exp(np.clip(-b / (2 * a), x[0], x[2]))) if a > 0 else rate
        found.append(BestRate(width, layers, flops, rate, means[best], not is_inside))
    return found


def rate_rule(found: Sequence[BestRate]) -> RateRule | None:
    """Return the rule of least squares in logarithms; None of fewer than two widths.

    Rates at an edge count where too few others are known.
    """
    inside = [one for one in found if not one.is_at_edge]
    used = inside if len({one.width for one in inside}) > 1 else list(found)
    if len({one.width for one in used}) < 2:
        return None
    width = np.log([one.width / 256 for one in used])
    flops = np.log([one.flops / 1e13 for one in used])
    columns = [np.ones(len(used)), width]
    # Both exponents need more points than values, at budgets that each have several widths.
    has_both = len({one.flops for one in used}) > 1 and len(used) > 3
    columns += [flops] if has_both else []
    y = np.log([one.rate for one in used])
    values, *_ = np.linalg.lstsq(np.stack(columns, 1), y, rcond=None)
    left = y - np.stack(columns, 1) @ values
    return RateRule(
        float(math.exp(values[0])),
        float(values[1]),
        float(values[2]) if has_both else 0.0,
        float(math.exp(np.sqrt(np.mean(left**2)))),
    )
