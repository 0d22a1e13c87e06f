"""Choices by small budgets: ranks, margins and what they cost, of known losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foreword.errors import UserError
from foreword.reports.choices import choice_rows
from foreword.scaling.choices import BudgetChoice, compare_budgets, verdict

SMALL, LARGE = 1e12, 1e13


def rows_of(
    small: dict[str, float],
    large: dict[str, float],
    seeds: int = 1,
    noise: float = 0.0,
    **more: Any,
) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {"size": cell, "budget": budget, "seed": seed, "loss": loss + noise * rng.normal(),
         "unit": "bits per byte", "vocabulary": 100, **more}
        for budget, of in ((SMALL, small), (LARGE, large))
        for cell, loss in of.items()
        for seed in range(1, seeds + 1)
    ]  # fmt: skip


def found(rows: list[dict[str, Any]]) -> tuple[BudgetChoice, BudgetChoice, list[str]]:
    (small, large), notes = compare_budgets(rows, 200)
    return small, large, notes


ORDER = {name: 2 + 0.1 * n for n, name in enumerate("abcde")}


@pytest.mark.parametrize(
    ("large", "tau", "cost", "said"),
    [
        (ORDER, 1.0, 0.0, "a, first at 1.0 × 10¹² FLOPs, stays first at 1.0 × 10¹³"),
        ({**ORDER, "a": 2.11}, 0.8, 0.01 / 2.1, "comes 2 of 5 at 1.0 × 10¹³, 0.48 % behind b"),
        ({n: 5 - loss for n, loss in ORDER.items()}, -1.0, 0.4 / 2.6, "comes 5 of 5"),
    ],
)
def test_known_ranks(large: dict[str, float], tau: float, cost: float, said: str) -> None:
    small, largest, notes = found(rows_of(ORDER, large))
    assert (small.tau, small.cost) == pytest.approx((tau, cost))
    assert small.winner == "a" and small.margin == pytest.approx(0.05)
    assert said in verdict(small, largest)
    assert small.tau_interval is not None and small.tau_interval[0] <= tau <= 1
    assert small.noise is None and any("one seed" in note for note in notes)
    assert "stays" not in choice_rows([small, largest])[0]


@pytest.mark.parametrize(("noise", "is_clear"), [(0.001, True), (0.3, False)])
def test_margins_are_told_from_the_noise_of_seeds(noise: float, is_clear: bool) -> None:
    small, largest, notes = found(rows_of(ORDER, ORDER, seeds=3, noise=noise))
    assert small.noise == pytest.approx(noise, rel=0.5) and not notes
    assert small.is_clear == is_clear
    assert "of draws" in choice_rows([small, largest])[0]["stays"]
    assert small.stays is not None and (small.stays == 1) == is_clear
    assert ("within the noise of seeds" in verdict(small, largest)) != is_clear


def test_cells_that_do_not_compare_are_left_out() -> None:
    rows = rows_of(ORDER, ORDER, unit="nats per prediction")
    other = rows_of({"x": 1.0}, {"x": 1.0}, unit="nats per prediction")
    late = rows_of({}, {"y": 1.0}, unit="nats per prediction")
    small, _, notes = found([*rows, *({**row, "vocabulary": 50} for row in other), *late])
    assert small.cells == tuple(ORDER)
    assert "left out: x: not in nats per prediction of the same vocabulary" in notes
    assert "left out: y: not at all budgets" in notes
    with pytest.raises(
        UserError, match="two budgets with 3 finished cells each are needed; 1 have"
    ):
        compare_budgets(rows_of({"a": 1.0}, ORDER))
    with pytest.raises(UserError, match="no run is finished"):
        compare_budgets([])


def test_bounds_are_not_compared_with_exact_losses() -> None:
    rows = rows_of(ORDER, ORDER, unit="bits per byte")
    bounds = rows_of({"x": 0.5}, {"x": 0.5}, unit="bits per byte, at most")
    small, _, notes = found([*rows, *bounds])
    assert small.cells == tuple(ORDER)
    assert "left out: x: not in bits per byte" in notes
