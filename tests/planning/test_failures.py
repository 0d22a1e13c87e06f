"""Failures: the simulation against Daly's closed forms, and published runs."""

from __future__ import annotations

import math

import pytest

from benchmarks.scale import simulated_times
from foreword.planning.failures import FAILURE_HOURS, best_interval, expected_time


@pytest.mark.parametrize(
    ("save", "restart", "between"), [(60.0, 300.0, 10_000.0), (200.0, 600.0, 3_000.0)]
)
def test_simulated_runs_take_the_expected_time(save: float, restart: float, between: float) -> None:
    interval = best_interval(save, between)
    work = 40 * interval
    times = simulated_times(work, interval, save, restart, between, runs=400, seed=1)
    error = times.std() / math.sqrt(len(times))
    expected = expected_time(work, interval, save, restart, between)
    assert abs(times.mean() - expected) < 3 * error
    assert error < 0.02 * expected


def test_the_same_seed_gives_the_same_runs() -> None:
    given = (1e4, 500.0, 10.0, 60.0, 2000.0)
    first, again = (simulated_times(*given, runs=3, seed=7) for _ in range(2))
    assert (first == again).all()
    assert (first != simulated_times(*given, runs=3, seed=8)).any()


def test_the_best_interval_takes_the_least_expected_time() -> None:
    for save, between in ((5.0, 40_000.0), (300.0, 10_000.0), (300.0, 1_500.0)):
        best = best_interval(save, between)
        times = [
            expected_time(1e6, best * factor, save, 60.0, between) for factor in (0.8, 1.0, 1.25)
        ]
        assert min(times) == times[1]
    assert best_interval(5.0, 4e4) == pytest.approx(math.sqrt(2 * 5 * 4e4), rel=0.02)  # Young


def test_without_failures_only_checkpoints_cost_time() -> None:
    assert expected_time(1000, 100, 10, 60, 1e12) == pytest.approx(1100)
    assert simulated_times(1000, 100, 10, 60, 1e12, runs=1, seed=1)[0] == pytest.approx(1100)


def test_a_run_that_cannot_get_on_is_infinite_or_refused() -> None:
    assert expected_time(1e6, 1e5, 1, 1, 10) == math.inf
    with pytest.raises(ValueError, match="failures"):
        simulated_times(1e6, 1e5, 1, 1, 10, runs=1, seed=1, most_failures=1000)


def test_llama_3_failed_every_three_hours() -> None:
    hours = FAILURE_HOURS / 16_384
    assert hours == pytest.approx(3.09, abs=0.01)
