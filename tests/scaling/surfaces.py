"""Tables of runs on a known surface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]

# alpha, beta, A, B; then the exponent and the log10 of the intercept of the optimal tokens, exact
# and by parabolas on sizes from a sixteenth to sixteen times the optimum, without noise.
SURFACES = [
    ((0.31, 0.31, 400.0, 400.0), (0.5, -0.389076), -0.389076),
    ((0.34, 0.28, 406.4, 410.7), (0.548387, -0.555357), -0.578092),
    ((0.465, 0.155, 406.4, 410.7), (0.75, -1.345791), -1.459957),
]
E = 1.69


def runs_on(
    values: Sequence[float],
    budgets: Sequence[float] = tuple(np.logspace(17, 21, 5)),
    *,
    sizes: int = 15,
    spread: float = 16.0,
    shift: float = 1.0,
    drift: float = 1.0,
) -> list[Row]:
    """Return runs whose tokens lie around the optimum of each budget, C = 6ND."""
    alpha, beta, a, b = values
    scale = (alpha * a / (beta * b)) ** (1 / (alpha + beta))
    rows = []
    for number, flops in enumerate(budgets):
        best = (flops / 6) ** (alpha / (alpha + beta)) / scale
        for factor in np.geomspace(1 / spread, spread, sizes):
            d = best * factor * shift * drift**number
            n = flops / 6 / d
            loss = E + a * n**-alpha + b * d**-beta
            rows.append({"parameters": n, "tokens": d, "flops": flops, "loss": float(loss)})
    return rows


def with_noise(rows: Sequence[Row], deviation: float, seeds: int = 1, seed: int = 0) -> list[Row]:
    """Return runs with noise between seeds; those of the smallest budget with several seeds."""
    rng = np.random.default_rng(seed)
    smallest = min(row["flops"] for row in rows)
    return [
        row | {"loss": row["loss"] + rng.normal(0, deviation), "seed": number}
        for row in rows
        for number in range(seeds if row["flops"] == smallest else 1)
    ]
