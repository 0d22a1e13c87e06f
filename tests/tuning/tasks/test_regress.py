"""Numbers learned from texts, scored as scipy scores them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from foreword.errors import TrainingStoppedError, UserError
from foreword.runs.run_folder import open_run
from foreword.tables.examples import Labelled
from foreword.tuning.settings import TuneSettings
from foreword.tuning.strategies.full import Full
from foreword.tuning.tasks import regress
from foreword.tuning.tasks.regress import LARGEST, Regress
from foreword.tuning.tune_result import save_network
from foreword.tuning.tuned_model import load_tuned
from tests.tuning.runs import BAD, GOOD, make_run, reviews, tune

FAST = TuneSettings(strategy=Full(lr=3e-3), seeds=1, epochs=6, precision="fp32")


def graded(count: int, seed: int) -> list[Labelled]:
    """Each telling word is worth a number of its own, far from 0."""
    worth = {word: 100 + 25 * n for n, word in enumerate(BAD + GOOD)}

    def grade(text: str) -> int:
        return next(worth[word] for word in text.split() if word in worth)

    return [e._replace(label=f"{grade(e.text)}.0") for e in reviews(count, seed)]


@pytest.mark.product(few=1)
@pytest.mark.parametrize("layout", ["encoder", "decoder"])
def test_regression_learns_a_scale_and_loads_back(tmp_path: Path, layout: str) -> None:
    trained = open_run(make_run(tmp_path / "run", layout), "cpu")
    dev = graded(60, 2)
    result = tune(trained, Regress(), graded(300, 1), dev, FAST)
    assert result.labels == ("100.0", "275.0")
    assert result.rows[0]["pearson"] > 0.9
    assert result.rows[0]["spearman"] > 0.9
    assert result.rows[-1].strategy == "mean"
    assert math.isnan(result.rows[-1]["pearson"])
    save_network(result, tmp_path / "tuned")
    tuned = load_tuned(tmp_path / "tuned", "cpu")
    outputs = tuned.outputs([e.text for e in dev])
    assert Regress().judge.scores(outputs, np.asarray([float(e.label) for e in dev]))[
        "pearson"
    ] == pytest.approx(result.rows[0]["pearson"], abs=1e-5)
    with pytest.raises(UserError, match="tuned to predict numbers"):
        tuned.predict(["fine"])


def test_scores_equal_scipys() -> None:
    random = np.random.default_rng(1)
    targets = np.round(random.uniform(0, 5, 50), 1).astype(np.float32)
    outputs = (targets + random.normal(0, 1, 50)).astype(np.float32)
    scores = Regress().judge.scores(outputs[:, None], targets)
    assert scores["pearson"] == pytest.approx(stats.pearsonr(outputs, targets).statistic, abs=1e-6)
    assert scores["spearman"] == pytest.approx(
        stats.spearmanr(outputs, targets).statistic, abs=1e-6
    )
    for flat in (
        Regress.judge.scores(np.full((50, 1), 2.5), targets),
        Regress.judge.scores(outputs[:, None], np.full(50, 2.5, np.float32)),
        Regress.judge.scores(outputs[:1, None], targets[:1]),
    ):
        assert math.isnan(flat["pearson"])
        assert math.isnan(flat["spearman"])
        assert math.isfinite(flat["rmse"])


def test_errors_are_in_the_unit_of_the_labels_and_follow_the_correlations() -> None:
    scores = Regress().judge.scores(np.array([[1.0], [2.0], [6.0]]), np.array([1.0, 3.0, 4.0]))
    assert list(scores) == list(Regress().judge.names) == ["pearson", "spearman", "rmse", "mae"]
    assert scores["rmse"] == pytest.approx((5 / 3) ** 0.5)
    assert scores["mae"] == 1.0
    targets = np.array([1.0, 3.0], np.float32)
    mean = Regress().judge.baselines(targets, targets, ())["mean"]
    assert Regress().judge.scores(mean, targets)["rmse"] == 1.0


def test_outputs_of_minus_one_and_one_are_the_ends_of_the_scale() -> None:
    head = Regress(dropout=0.0).head(1, ("1.0", "5.0"))
    linear = next(module for module in head.modules() if isinstance(module, torch.nn.Linear))
    with torch.no_grad():
        linear.weight.fill_(1.0)
        linear.bias.zero_()
        assert head(torch.tensor([[-1.0], [0.0], [1.0]])).flatten().tolist() == [1.0, 3.0, 5.0]


def test_the_loss_is_a_sum_of_squares() -> None:
    loss = Regress().loss(torch.tensor([[1.0], [2.0]]), torch.tensor([3.0, 2.5]), torch.arange(2))
    assert (loss.total.item(), loss.count.item()) == (4.25, 2.0)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["1", "x"], r"b.tsv:7: 'x' is not a number; use --task classify"),
        (["1", "nan"], r"b.tsv:7: 'nan' is not a number"),
        (["1", "-1e308"], r"b.tsv:7: -1e308 is too large to learn; scale the labels, at most"),
        (["2", "2.0"], "at least two numbers; all 2 are 2"),
        (["1", "1.000000001"], "at least two numbers; all 2 are 1"),
    ],
)
def test_labels_that_are_not_numbers_or_all_equal_are_refused(
    labels: list[str], message: str
) -> None:
    train = [Labelled("a", label, source="b.tsv:7") for label in labels]
    with pytest.raises(UserError, match=message):
        Regress().labels(train)


@pytest.mark.parametrize("size", [LARGEST, -LARGEST])
def test_the_largest_numbers_are_learned(tmp_path: Path, size: float) -> None:
    trained = open_run(make_run(tmp_path / "run"), "cpu")
    train = [e._replace(label=str(n % 2 * size)) for n, e in enumerate(reviews(8, 1))]
    result = tune(trained, Regress(), train, train, replace(FAST, epochs=1))
    assert result.rows[0].about["skipped_steps"] == 0
    assert -1 <= result.rows[0]["pearson"] <= 1


def test_fine_tuning_fails_if_every_step_was_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regress, "LARGEST", 1e30)
    trained = open_run(make_run(tmp_path / "run"), "cpu")
    train = [e._replace(label=f"{n % 2}e30") for n, e in enumerate(reviews(8, 1))]
    with pytest.raises(TrainingStoppedError, match="seed 1: none of the 1 steps was finite; "):
        tune(trained, Regress(), train, train, replace(FAST, epochs=1))


@pytest.mark.full
def test_the_epoch_of_the_lowest_error_is_kept(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path / "run"), "cpu")
    settings = replace(FAST, epochs=4, strategy=Full(lr=1e-2), keep="best", metric="rmse")
    result = tune(trained, Regress(), graded(60, 1), graded(30, 2), settings)
    errors = [row["rmse"] for row in result.epochs]
    assert result.rows[0]["rmse"] == min(errors) < max(errors)
