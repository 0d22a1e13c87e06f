"""Tests between all pairs of cells, and what they say in words."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from foreword.comparison import ladder, verdicts
from foreword.comparison.results import gather
from foreword.comparison.tables import tables, write
from foreword.comparison.verdicts import Pair, Verdict
from foreword.comparison.verdicts import verdicts as verdicts_of
from foreword.evaluation.statistics import (
    Spread,
    holm,
    paired_differences,
    unpaired_differences,
)
from tests.comparison import grids

TWINS = [{**grids.CAUSAL, "label": "one"}, {**grids.CAUSAL, "label": "two"}]
SMALL = {"recipe": "decoder.toml", "label": "wide", "set": {"optimizer": {"lr": 0.03}}}


def test_differences_of_two_models_are_the_paired_t_test() -> None:
    values = np.random.default_rng(1).normal(0.0, 1.0, (2, 5))
    (actual,) = paired_differences(values)
    expected = stats.ttest_rel(*values)
    assert actual.p == pytest.approx(expected.pvalue)
    assert actual.mean == pytest.approx(values[0].mean() - values[1].mean())
    assert paired_differences(np.ones((3, 4))) == paired_differences(np.ones((3, 1))) == []
    one, other = np.random.default_rng(2).normal(0.0, 1.0, (2, 7))
    (welch,) = unpaired_differences([Spread.of(list(one)), Spread.of(list(other))])
    assert welch.p == pytest.approx(stats.ttest_ind(one, other, equal_var=False).pvalue)


@pytest.mark.parametrize(("noisiest", "most"), [(1.0, 0.06), (10.0, 0.11)])
def test_families_without_differences_seldom_have_one(noisiest: float, most: float) -> None:
    rng = np.random.default_rng(1)
    noise = np.array([1.0, 1.0, 1.0, 1.0, noisiest])[:, None]
    wrong = found = 0
    for _ in range(400):
        values = noise * rng.normal(0.0, 1.0, (5, 3)) + rng.normal(0.0, 5.0, (1, 3))
        wrong += min(holm([one.p for one in paired_differences(values)])) < 0.05
        values[0] += 8.0
        found += holm([one.p for one in paired_differences(values)])[0] < 0.05
    assert wrong / 400 <= most
    assert found / 400 >= (0.95 if noisiest == 1.0 else 0.3)
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])


@pytest.mark.parametrize(
    ("apart", "expected"),
    [
        ("ab ac", "a beats b and c; b and c cannot be told apart with 3 seeds"),
        ("ac bc", "a and b beat c; a and b cannot be told apart with 3 seeds"),
        (
            "ac",
            "a beats c; a and b cannot be told apart; b and c cannot be told apart with 3 seeds",
        ),
        ("ab ac bc", "a beats b and c; b beats c with 3 seeds"),
        ("", "a, b and c cannot be told apart with 3 seeds"),
    ],
)
def test_a_verdict_says_who_beats_whom_and_who_cannot_be_told_apart(
    apart: str, expected: str
) -> None:
    pairs = tuple(
        Pair(*pair, 1.0, 0.0, 0.01 if pair in apart.split() else 0.2) for pair in ("ab", "ac", "bc")
    )
    verdict = Verdict("loss", "loss", "3 seeds", tuple("abc"), pairs)
    assert verdicts._words(verdict, 3) == expected
    assert verdicts._words(dataclasses.replace(verdict, pairs=()), 1).startswith(
        "a has the best mean, but nothing can be tested"
    )
    fewer = dataclasses.replace(verdict, left_out=("d",))
    assert verdicts._words(fewer, 3) == f"{expected}; d left out, with fewer seeds"
    assert verdicts._name("rows, all") == "'rows, all'"


def test_twins_cannot_be_told_apart_and_all_files_have_the_tests(
    folder: Path, tmp_path: Path
) -> None:
    cells, out = [*TWINS, SMALL], tmp_path / "out"
    results = gather(grids.compare(folder, out, cells=cells, tasks=[], seeds=3))
    (verdict,) = verdicts_of(results)
    assert (verdict.measure, verdict.metric, verdict.over) == (
        "held-out loss",
        "bits_per_byte",
        "3 seeds",
    )
    p = {frozenset((pair.better, pair.worse)): pair.p for pair in verdict.pairs}
    assert p[frozenset(("one", "two"))] == 1.0
    assert "one and two cannot be told apart" in verdict.text
    write(results)
    document = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert document["verdicts"][0]["pairs"][0].keys() == {
        "better",
        "worse",
        "difference",
        "p",
        "corrected",
    }
    with (out / "results.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["start"].startswith("over ")]
    assert len(rows) == 2 * len(verdict.pairs)
    assert verdict.text in (out / "table.md").read_text(encoding="utf-8")
    # An upper bound ranks nothing beside exact losses, in whatever place it would stand.
    runs = [dataclasses.replace(run, is_bound=run.cell == "wide") for run in results.runs]
    bounded = dataclasses.replace(results, runs=tuple(runs))
    (verdict,) = verdicts_of(bounded)
    assert set(verdict.cells) == {"one", "two"}
    rows = {row[0]: row for table in tables(bounded)[1:2] for row in table.rows}
    assert sum("at most" in value for value in rows["wide"]) == 3
    assert not any("at most" in value for value in rows["one"])
    units = {row["unit"] for row in ladder.rows_of(bounded, "x") if row["size"] == ""}
    assert units == {"bits per byte", "bits per byte, at most"}


def test_one_seed_is_tested_on_pieces_of_text_alone(folder: Path, tmp_path: Path) -> None:
    cells, out = [*TWINS, SMALL], tmp_path / "out"
    results = gather(grids.compare(folder, out, cells=cells, tasks=[]))
    (verdict,) = verdicts_of(results)
    assert verdict.over.startswith("1 seed and ")
    assert verdict.over.endswith(" pieces of text")
    assert verdict.text.endswith("(these models, not their recipes)")
    losses = {run.cell: run.heldout_loss for run in results.runs}
    for pair in verdict.pairs:
        assert pair.difference == pytest.approx(
            abs(losses[pair.worse] - losses[pair.better]), rel=0.2
        )
    (unknown,) = verdicts_of(dataclasses.replace(results, batches={}))
    assert unknown.over == ""
    assert not unknown.pairs
    assert "nothing can be tested" in unknown.text


def test_losses_of_different_objectives_have_no_verdict(folder: Path, out: Path) -> None:
    results = gather(grids.compare(folder, out))
    (verdict,) = verdicts_of(results)
    assert (verdict.measure, verdict.over) == ("Reviews", "2 seeds of fine-tuning")
    assert tables(results)[0].title == "Verdicts"
    accuracy = gather(grids.compare(folder, out, tasks=[{**grids.TASK, "metric": "accuracy"}]))
    (verdict,) = verdicts_of(accuracy)
    assert verdict.over == "2 seeds of fine-tuning and 12 examples"
    assert verdict.text.endswith(" (these models, not their recipes)")
    (pair,) = verdict.pairs
    cells, (task,) = accuracy.comparison.grid.cells, accuracy.comparison.grid.tasks
    (over,) = (m for m in accuracy.margins(cells[1], task).values() if m.over == "masked")
    assert (pair.difference, pair.p) == (pytest.approx(abs(over.difference)), over.p or 1.0)
