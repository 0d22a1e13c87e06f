"""Schedules against their closed forms, and the contract of every schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from foreword.settings import kinds
from foreword.testing.training import SCHEDULE_CHECKS
from foreword.train.budget import Budget, Progress
from foreword.train.schedules._contract import Schedule
from foreword.train.warmup import Warmup

TOTAL, RISE = 1000, 100
EVERY = kinds.names("train/schedules")

# After the warm-up, by the step and the share of the time after it.
CLOSED: dict[str, Callable[[int, float, float], float]] = {
    "constant": lambda step, after, floor: 1.0,
    "linear": lambda step, after, floor: 1 - (1 - floor) * after,
    "cosine": lambda step, after, floor: floor + (1 - floor) * (1 + math.cos(math.pi * after)) / 2,
    "inverse_sqrt": lambda step, after, floor: math.sqrt(RISE / (step + 1)),
    # The last fifth of the whole decays.
    "wsd": lambda step, after, floor: 1 - (1 - floor) * math.sqrt(max(0, step / TOTAL - 0.8) / 0.2),
    # Of 13 epochs the first four are at the full rate.
    "epochs": lambda step, after, floor: max(floor, 0.5 ** max(int(after * 13 + 1e-9) - 3, 0)),
}


def made(kind: str, warmup: Warmup, floor: float | None = None) -> Any:
    cls = kinds.load("train/schedules", kind)
    has_floor = "floor" in cls.__dataclass_fields__
    return cls(warmup=warmup, **({"floor": floor} if has_floor and floor is not None else {}))


def rates(schedule: Any, total: int = TOTAL) -> list[float]:
    """Return the factor at each step of a run of `total` steps."""
    return [schedule.factor(step / total, step, total) for step in range(total)]


def test_every_schedule_has_a_closed_form() -> None:
    assert sorted(CLOSED) == EVERY


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("floor", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("warmup", [Warmup(steps=RISE), Warmup(share=RISE / TOTAL)])
def test_rates_equal_the_closed_form(kind: str, floor: float, warmup: Warmup) -> None:
    actual = rates(made(kind, warmup, floor))
    for step in range(RISE):
        assert actual[step] == pytest.approx((step + 1) / RISE), step
    for step in range(RISE, TOTAL):
        after = (step - RISE) / (TOTAL - RISE)
        assert actual[step] == pytest.approx(CLOSED[kind](step, after, floor)), step


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("check", SCHEDULE_CHECKS, ids=lambda check: check.__name__)
def test_every_schedule_keeps_the_contract(check: Callable[[Schedule], None], kind: str) -> None:
    for warmup in (Warmup(steps=0, share=0.0), Warmup(steps=5 * TOTAL), Warmup()):
        check(made(kind, warmup))


@pytest.mark.parametrize("kind", sorted({*EVERY} - {"inverse_sqrt"}))  # by steps, not by progress
def test_the_rate_follows_the_progress_of_a_budget_in_another_unit(kind: str) -> None:
    """A budget in hours: the steps at the end are estimated, and twice as many as there are."""
    schedule = made(kind, Warmup(share=RISE / TOTAL))
    exact = rates(schedule)
    for step in (0, RISE // 2, RISE, TOTAL // 2, TOTAL - 1):
        estimated = schedule.factor(step / TOTAL, step, 2 * TOTAL)
        assert estimated == pytest.approx(exact[step], abs=1 / RISE), step


@pytest.mark.parametrize("kind", ["linear", "cosine", "wsd"])
def test_the_floor_is_reached_at_the_end(kind: str) -> None:
    schedule = made(kind, Warmup(), floor=0.2)
    assert schedule.factor(1.0, TOTAL, TOTAL) == pytest.approx(0.2)
    assert rates(schedule)[-1] == pytest.approx(0.2, abs=0.003)


def test_the_constant_part_does_not_depend_on_the_length() -> None:
    schedule = kinds.load("train/schedules", "wsd")(Warmup(steps=RISE), decay=0.25, shape="linear")
    short, long = rates(schedule, 400), rates(schedule, TOTAL)
    assert short[:300] == long[:300] and long[300:750] == [1.0] * 450
    assert short[350] == pytest.approx(0.5) and short[300] == 1.0


def test_inverse_sqrt_by_share_falls_evenly_while_the_pace_changes() -> None:
    """A budget in hours: the total is estimated anew at each step, and the rate does not jump."""
    schedule = made("inverse_sqrt", Warmup(share=0.1))
    budget, seconds = Budget("hours", 1.0), 0.0
    for steps in range(1, 200):
        seconds += 6.0 if steps < 100 else 24.0
        spent = Progress(steps=steps, seconds=seconds)
        progress = budget.progress(spent)
        if progress > 0.2:
            factor = schedule.factor(progress, steps, budget.total_steps(steps, progress))
            assert factor == pytest.approx(math.sqrt(0.1 / progress), rel=0.01)
