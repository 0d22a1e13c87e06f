"""The difference that a comparison can detect, as it says before training and after."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from foreword.cli.main import run
from foreword.comparison.power import (
    ASSUMED,
    detectable_by_seeds,
    detectable_on_examples,
    power_notes,
)
from foreword.comparison.results import Results, TuningScore, gather
from foreword.comparison.tables import notes
from foreword.evaluation.statistics import (
    Spread,
    difference,
    pooled_deviation,
    signal,
    signal_notes,
    spreads_on_same_items,
)
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
    samples = [Spread.of(sample) for sample in ([1.0, 3.0], [5.0, 5.0, 5.0], [7.0])]
    assert pooled_deviation(samples) == pytest.approx(math.sqrt(2 / 3))
    assert pooled_deviation(samples[2:]) is None


def test_the_signal_is_that_of_an_analysis_of_variance() -> None:
    samples = [[1.0, 3.0, 2.5], [5.0, 4.0], [2.0, 2.2, 1.0, 3.0]]
    expected, found = stats.f_oneway(*samples), signal([Spread.of(sample) for sample in samples])
    assert found is not None
    assert (found.ratio**2, found.p) == pytest.approx((expected.statistic, expected.pvalue))


def test_cells_that_do_not_differ_have_a_signal_of_about_one() -> None:
    rng = np.random.default_rng(1)
    drawn = rng.normal(0, 1, (500, 4, 6))
    found = [signal([Spread.of(list(cell)) for cell in cells]) for cells in drawn]
    known = [one for one in found if one is not None]
    assert np.median([one.ratio for one in known]) == pytest.approx(1, abs=0.15)
    assert np.mean([one.p <= 0.05 for one in known]) == pytest.approx(0.05, abs=0.03)


def test_what_is_hard_for_all_models_is_no_noise() -> None:
    rng = np.random.default_rng(1)
    answers = rng.normal(0, 5, 400) + rng.normal(0, 0.5, (2, 400)) + np.array([[0.0], [0.2]])
    apart = signal([Spread.of(list(model)) for model in answers])
    paired = signal(spreads_on_same_items(answers))
    assert apart is not None
    assert paired is not None
    assert apart.p > 0.05 > paired.p
    assert paired.ratio**2 == pytest.approx(stats.ttest_rel(*answers).statistic ** 2)


@pytest.mark.parametrize(
    ("cells", "line"),
    [
        ([[0.6, 0.62], [0.8, 0.81]], ": A 17.4"),
        ([[0.6, 0.8], [0.7, 0.81]], ": A 0.5, cannot tell the cells apart"),
        ([[0.6, 0.62]], None),
        ([[0.6], [0.8]], None),
        ([[0.6, 0.6], [0.8, 0.8]], None),
        ([[0.6, 0.6], [0.6, 0.6]], ": A 0.0, cannot tell the cells apart"),
        ([[0.6, 0.8], [0.7, 0.81], [math.nan, math.nan]], ": A 0.5, cannot tell the cells apart"),
    ],
)
def test_a_score_that_cannot_tell_cells_apart_is_marked(
    cells: list[list[float]], line: str | None
) -> None:
    found = signal([Spread.of(cell) for cell in cells])
    lines = signal_notes({"A": found, "B": None}, "cells", "over seeds")
    assert [text[text.rindex(": ") :] for text in lines] == ([line] if line else [])


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
    deviation = pooled_deviation(results.spreads(task))
    assert deviation is not None
    (line,) = power_notes(results)
    assert f"which deviate by {deviation:.3f}" in line
    assert line in notes(results)
    found = signal(results.spreads(task))
    assert found is not None
    assert results.as_json()["signals"][task.name] == {"ratio": found.ratio, "p": found.p}
    assert any(f"Reviews {found.ratio:.1f}" in line for line in notes(results))


@pytest.mark.full
@pytest.mark.parametrize("items", [(0.5, 100), None])
def test_with_one_seed_the_noise_is_over_questions_or_examples(
    folder: Path, out: Path, items: tuple[float, int] | None
) -> None:
    comparison = grids.compare(folder, out)
    (task,) = comparison.grid.tasks
    scores = [
        TuningScore(cell, 1, task.name, "pretrained", 1, {"matthews": score}, items)
        for cell, score in (("masked", 0.1), ("decoder", 0.4))
    ]
    found = Results(comparison, [], scores, {task.name: 100}).signals()[task.name]
    assert found is not None
    error = 0.05 if items else 0.1  # of uncorrelated labels, by examples alone
    assert found.ratio == pytest.approx(0.3 / 2**0.5 / error)


@pytest.mark.full
def test_with_one_seed_nothing_is_detectable(folder: Path, out: Path) -> None:
    task = {**grids.TASK, "tune": {**grids.TASK["tune"], "seeds": 1}}
    results = gather(grids.compare(folder, out, tasks=[task]))
    assert power_notes(results) == [
        "Reviews, matthews: one seed has no interval, so no difference is detectable."
    ]
