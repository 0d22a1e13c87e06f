"""The difference that a comparison can detect, as it says before training and after."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from foreword.cli.main import run
from foreword.comparison.power import (
    ASSUMED,
    detectable_by_seeds,
    detectable_on_examples,
    pooled_deviation,
    power_notes,
)
from foreword.comparison.results import gather
from foreword.comparison.tables import notes
from foreword.evaluation.statistics import Spread, difference
from tests.comparison import grids


@pytest.mark.product(few=1)
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_difference_is_detected_in_eight_of_ten_cases(seeds: int) -> None:
    rng = np.random.default_rng(1)
    shift = detectable_by_seeds(0.02, seeds)
    shown = 0
    for _ in range(2_000):
        one, other = rng.normal(0.7, 0.02, (2, seeds))
        found = difference(Spread.of(list(one + shift)), Spread.of(list(other)))
        shown += found.mean > found.half_width
    assert shown / 2_000 == pytest.approx(0.8, abs=0.03)


def test_it_equals_the_tables_of_the_t_test() -> None:
    """Two samples of 17 have a power of 80 % for a difference of one deviation (Cohen 1988)."""
    assert detectable_by_seeds(1.0, 17) == pytest.approx(1.0, abs=0.02)


def test_more_seeds_detect_smaller_differences() -> None:
    differences = [detectable_by_seeds(0.02, seeds) for seeds in (2, 3, 5, 10)]
    assert differences == sorted(differences, reverse=True)
    assert detectable_by_seeds(0.04, 3) == pytest.approx(2 * detectable_by_seeds(0.02, 3))


def test_drawn_examples_detect_a_difference_of_accuracy_in_eight_of_ten_cases() -> None:
    shift = detectable_on_examples("accuracy", 1_000)
    assert shift is not None
    rng = np.random.default_rng(1)
    shares = [rng.binomial(1_000, 0.5 + sign * shift / 2, 5_000) / 1_000 for sign in (1, -1)]
    half = 1.96 * math.sqrt(2 * 0.25 / 1_000)
    assert np.mean(shares[0] - shares[1] > half) == pytest.approx(0.8, abs=0.02)
    assert detectable_on_examples("a metric of a plug-in", 1_000) is None


def test_the_deviation_is_pooled_over_cells() -> None:
    assert pooled_deviation([[1.0, 3.0], [5.0, 5.0, 5.0], [7.0]]) == pytest.approx(math.sqrt(2 / 3))
    assert pooled_deviation([[1.0], []]) is None


@pytest.mark.full
def test_a_dry_run_assumes_a_deviation_and_finished_cells_replace_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", grids.write_grid(folder), "--out", str(tmp_path / "out"), "--dry-run"]
    assert run(words) == 0
    before = " ".join(capsys.readouterr().err.split())
    smallest = detectable_by_seeds(ASSUMED, 2)
    assert f"matthews: a difference of {smallest:.3f} between two cells is detectable" in before
    assert "2 seeds of fine-tuning each, assumed to deviate by 0.020; to hold" in before
    assert "examples other than these 12, up to" in before


@pytest.mark.full
def test_notes_state_the_observed_deviation(folder: Path, out: Path) -> None:
    results = gather(grids.compare(folder, out))
    (task,) = results.comparison.grid.tasks
    samples = [results.task_values(cell, task, "pretrained") for cell in ("masked", "decoder")]
    deviation = pooled_deviation(samples)
    assert deviation is not None
    (line,) = power_notes(results)
    assert f"which deviate by {deviation:.3f}" in line
    assert line in notes(results)


@pytest.mark.full
def test_with_one_seed_nothing_is_detectable(folder: Path, out: Path) -> None:
    task = {**grids.TASK, "tune": {**grids.TASK["tune"], "seeds": 1}}
    results = gather(grids.compare(folder, out, tasks=[task]))
    assert power_notes(results) == [
        "Reviews, matthews: one seed has no interval, so no difference is detectable."
    ]
