"""Seeds that diverge, that are kept until all are done, and the epoch that each keeps."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from foreword.disk import stored
from foreword.errors import NotFiniteError, TrainingStoppedError, UserError
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.tuning.fine_tuner import FineTuner
from foreword.tuning.outputs import SCORING_DTYPE, predict
from foreword.tuning.remarks import setting_cells
from foreword.tuning.scores import Scores, as_gain, single, summarise
from foreword.tuning.seed_results import SeedResult
from foreword.tuning.seed_results import _stuck_notes as stuck_notes
from foreword.tuning.seed_results import _undefined_notes as undefined_notes
from foreword.tuning.settings import TuneSettings
from foreword.tuning.strategies.frozen import Frozen
from foreword.tuning.strategies.full import Full
from foreword.tuning.strategies.lora import LoRA
from foreword.tuning.strategies.prefix_tuning import PrefixTuning
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks.classify import Classify, ClassJudge
from foreword.tuning.tasks.regress import Regress
from foreword.tuning.tasks.text_to_text import TextToText
from foreword.tuning.tune_result import TuneResult, as_json
from tests.tuning.runs import make_run, reviews, tune

TASK = Classify()
FAST = TuneSettings(strategy=Full(lr=3e-3), seeds=3, epochs=2, precision="fp32")
TRAIN, DEV, FURTHER = reviews(48, 1), reviews(24, 2), reviews(16, 3)


@pytest.fixture
def trained(tmp_path: Path) -> TrainedModel:
    return open_run(make_run(tmp_path / "run"), "cpu")


def fail_seeds(
    monkeypatch: pytest.MonkeyPatch, error: Callable[[int], BaseException | None]
) -> list[int]:
    """Let seeds end with the error that a function returns; return the list of seeds that run."""
    begun: list[int] = []
    loop = FineTuner.loop

    def failing(self: FineTuner, *told: Any) -> Any:
        begun.append(self.seed)
        raised = error(self.seed)
        return loop(self, *told) if raised is None else Mock(train=Mock(side_effect=raised))

    monkeypatch.setattr(FineTuner, "loop", failing)
    return begun


def weights(result: TuneResult) -> dict[str, torch.Tensor]:
    return dict(result.network.named_parameters())


def test_a_seed_that_diverges_is_counted_and_the_others_go_on(
    trained: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tune(trained, TASK, TRAIN, DEV, FAST)
    fail_seeds(monkeypatch, lambda seed: NotFiniteError("not finite") if seed == 1 else None)
    result = tune(trained, TASK, TRAIN, DEV, FAST)
    row = result.rows[0]
    assert (row.about["seeds"], row.about["diverged"]) == (3, 1)
    finals = [r["accuracy"] for r in whole.epochs if r.about["epoch"] == 2 and r.about["seed"] > 1]
    assert row["accuracy"] == pytest.approx(sum(finals) / 2)
    assert [r.about["seed"] for r in result.epochs] == [2, 2, 3, 3]
    assert any("1 of 3 seeds diverged (seed 1)" in note for note in result.notes)
    # The network is that of the first seed that did not.
    assert not torch.equal(weights(result)["head.1.weight"], weights(whole)["head.1.weight"])


def test_seeds_that_learn_nothing_are_said() -> None:
    baselines = [single("no model", "majority class", {"accuracy": 0.5, "f1": 0.3})]
    finals = [
        single("pretrained", "full", {"accuracy": score, "f1": 0.4}, seed=n)
        for n, score in enumerate([0.5, 0.9], 1)
    ]
    (note,) = stuck_notes(finals, baselines, "", TASK)
    assert note == (
        "1 of 2 seeds (1) are no better than 'majority class' by accuracy; likely --lr is too "
        "high, training is too short, or pretraining has barely begun"
    )
    assert stuck_notes(finals, baselines, "f1", TASK) == []
    assert stuck_notes(finals, [], "", TASK) == []


def test_all_seeds_of_the_only_variant_diverging_is_an_error(
    trained: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_seeds(monkeypatch, lambda seed: NotFiniteError(f"seed {seed}: not finite"))
    with pytest.raises(TrainingStoppedError, match="seed 3: not finite"):
        tune(trained, TASK, TRAIN, DEV, FAST)


@pytest.mark.full
def test_a_compared_variant_whose_seeds_all_diverge_has_no_scores(
    trained: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fail_seeds(
        monkeypatch, lambda seed: NotFiniteError("not finite") if len(calls) > 3 else None
    )
    result = tune(trained, TASK, TRAIN, DEV, [FAST, replace(FAST, from_scratch=True)])
    assert result.rows[1].about["diverged"] == 3
    assert not result.rows[1].metrics


def test_finished_seeds_are_not_trained_again_and_the_result_is_the_same(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tuned"
    whole = tune(trained, TASK, TRAIN, DEV, FAST, extra={"more": FURTHER})
    with monkeypatch.context() as patch:
        fail_seeds(patch, lambda seed: KeyboardInterrupt() if seed == 3 else None)
        with pytest.raises(KeyboardInterrupt):
            tune(trained, TASK, TRAIN, DEV, FAST, extra={"more": FURTHER}, folder=folder)
    begun = fail_seeds(monkeypatch, lambda seed: None)
    result = tune(trained, TASK, TRAIN, DEV, FAST, extra={"more": FURTHER}, folder=folder)
    assert begun == [3]
    assert result.resumed == 2
    assert as_json(result, "n", "") == as_json(whole, "n", "")
    assert all(torch.equal(p, weights(whole)[name]) for name, p in weights(result).items())


@pytest.mark.product(few=1)
@pytest.mark.parametrize(
    "changed",
    ["settings", "train", "dev", "task", "damaged /about.json", "damaged /weights.safetensors"],
)
def test_a_seed_of_other_settings_or_examples_or_a_damaged_one_is_trained_again(
    changed: str, trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replace(FAST, seeds=1)
    folder = tmp_path / "tuned"
    tune(trained, TASK, TRAIN, DEV, one, folder=folder)
    begun = fail_seeds(monkeypatch, lambda seed: None)
    tune(trained, TASK, TRAIN, DEV, replace(one, seeds=2), folder=folder)
    assert begun == [2]
    if changed.startswith("damaged"):
        (file,) = tmp_path.glob(f".tuned.seeds/*-1{changed.removeprefix('damaged ')}")
        file.write_bytes(file.read_bytes()[:-9])
    settings = replace(one, epochs=1) if changed == "settings" else one
    train = reviews(40, 1) if changed == "train" else TRAIN
    dev = reviews(20, 2) if changed == "dev" else DEV
    task = Classify(dropout=0.2) if changed == "task" else TASK
    tune(trained, task, train, dev, settings, folder=folder)
    assert begun == [2, 1]


def test_the_best_epoch_is_kept_with_its_weights_and_said(trained: TrainedModel) -> None:
    settings = replace(FAST, keep="best", epochs=6, seeds=2, metric="matthews")
    result = tune(trained, TASK, TRAIN, DEV, settings)
    curves = [[r for r in result.epochs if r.about["seed"] == seed] for seed in (1, 2)]
    best = [max(curve, key=lambda r: float(r["matthews"])) for curve in curves]
    assert result.rows[0]["matthews"] == pytest.approx(sum(r["matthews"] for r in best) / 2)
    assert result.rows[0].about["epochs"] == 6
    assert result.rows[0].about["kept_epoch"] == pytest.approx(
        sum(r.about["epoch"] for r in best) / 2
    )
    assert best[0].about["epoch"] < 6, "the last is the best, so the test would show nothing"
    assert any("kept the best of its epochs by matthews" in note for note in result.notes)


def test_patience_ends_a_seed_that_no_longer_improves(
    trained: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([0.5, 0.7, 0.7, 0.6, 0.9])

    def scored(self: ClassJudge, *given: Any) -> dict[str, float]:
        return {"accuracy": next(scores) if len(given[0]) == len(DEV) else 0.0}

    monkeypatch.setattr(ClassJudge, "scores", scored)
    monkeypatch.setattr(ClassJudge, "baselines", lambda *given: {})
    settings = replace(FAST, keep="best", patience=2, epochs=9, seeds=1)
    shown: list[tuple[int, int]] = []
    result = tune(
        trained,
        TASK,
        TRAIN,
        DEV,
        settings,
        report=lambda done, total, note: shown.append((done, total)),
    )
    assert [r["accuracy"] for r in result.epochs] == [0.5, 0.7, 0.7, 0.6]
    assert result.rows[0]["accuracy"] == 0.7
    assert result.rows[0].about["kept_epoch"] == 2


@pytest.mark.full
def test_epochs_between_scores_are_trained_alike_and_the_last_is_scored(
    trained: TrainedModel,
) -> None:
    settings = replace(FAST, seeds=1, epochs=5)
    whole = tune(trained, TASK, TRAIN, DEV, settings)
    part = tune(trained, TASK, TRAIN, DEV, replace(settings, score_every=2))
    assert [row.about["epoch"] for row in part.epochs] == [2, 4, 5]
    for row in part.epochs:
        same = whole.epochs[row.about["epoch"] - 1]
        assert {**row.as_row(), "train_loss": 0} == {**same.as_row(), "train_loss": 0}
    losses = [row.about["train_loss"] for row in whole.epochs]
    assert part.epochs[1].about["train_loss"] == pytest.approx(sum(losses[2:4]) / 2)
    assert part.rows[0]["accuracy"] == whole.rows[0]["accuracy"]
    assert all(torch.equal(p, weights(whole)[name]) for name, p in weights(part).items())
    with pytest.raises(ValueError, match="score_every: keep='best' needs the score of every"):
        replace(settings, score_every=2, keep="best")


@pytest.mark.full
def test_further_examples_are_scored_once_at_the_end_and_choose_nothing(
    trained: TrainedModel,
) -> None:
    result = tune(trained, TASK, TRAIN, DEV, FAST, extra={"test": FURTHER})
    assert {"test_accuracy", "test_f1"} <= result.rows[0].metrics.keys()
    assert result.rows[0].metrics["test_accuracy"].std is not None
    assert result.rows[-1]["test_accuracy"] == 0.5  # of the majority class
    assert "test_accuracy" not in result.epochs[0].metrics
    plain = tune(trained, TASK, TRAIN, DEV, FAST)
    known = {k: v for k, v in result.rows[0].metrics.items() if not k.startswith("test_")}
    assert known == plain.rows[0].metrics


@pytest.mark.full
def test_labels_and_answers_of_all_seeds_are_counted(trained: TrainedModel) -> None:
    result = tune(trained, TASK, TRAIN, DEV, FAST)
    assert result.confusion is not None
    assert [sum(row) for row in result.confusion] == [12 * 3, 12 * 3]
    right = result.confusion[0][0] + result.confusion[1][1]
    assert right / (24 * 3) == pytest.approx(result.rows[0]["accuracy"])


def test_an_unknown_metric_is_refused_before_training(
    trained: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = fail_seeds(monkeypatch, lambda seed: None)
    with pytest.raises(UserError, match=r"tune\.metric: 'f2' is not a score of this task: accu"):
        tune(trained, TASK, TRAIN, DEV, replace(FAST, metric="f2"))
    assert not begun


def test_patience_requires_that_the_best_epoch_is_kept() -> None:
    with pytest.raises(ValueError, match=r"patience: requires keep='best'; set tune\.keep=best"):
        TuneSettings(patience=2)


@pytest.mark.full
def test_the_kept_weights_are_those_that_were_scored(trained: TrainedModel) -> None:
    settings = replace(FAST, keep="best", epochs=5, seeds=1)
    found: list[float] = []
    kept = FineTuner.result

    def rescored(self: FineTuner) -> SeedResult:
        result = kept(self)
        outputs = predict(self.network, self.dev, self.device, SCORING_DTYPE)
        found.append(self.task.judge.scores(outputs, self.data.draws[0].dev.targets)["accuracy"])
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FineTuner, "result", rescored)
        result = tune(trained, TASK, TRAIN, DEV, settings)
    assert found == [max(r["accuracy"] for r in result.epochs)]


@pytest.mark.product(few=1)
@pytest.mark.parametrize(
    ("layout", "task", "settings"),
    [
        ("encoder", Classify(mix_layers=True), TuneSettings(strategy=Frozen(lr=1e-2))),
        ("encoder", TASK, TuneSettings(strategy=LoRA(), keep="best")),
        ("encoder", TASK, TuneSettings(strategy=PrefixTuning(length=3), keep="best")),
        ("encoder", TASK, TuneSettings(from_scratch=True)),
        ("encoder_decoder", TextToText(), TuneSettings(strategy=Full(lr=1e-3))),
    ],
)
def test_a_finished_seeds_network_is_the_one_that_was_tuned(
    layout: str, task: Task, settings: TuneSettings, tmp_path: Path
) -> None:
    trained = open_run(make_run(tmp_path / "run", layout), "cpu")
    settings = replace(settings, seeds=1, epochs=2, precision="fp32")
    first, again = (
        tune(trained, task, TRAIN, DEV, settings, folder=tmp_path / "tuned") for _ in range(2)
    )
    assert (first.resumed, again.resumed) == (0, 1)
    assert first.rows == again.rows
    assert weights(first).keys() == weights(again).keys()
    assert all(torch.equal(p, weights(again)[name]) for name, p in weights(first).items())


def test_trained_parameters_stand_in_the_table_where_they_differ() -> None:
    def shown(*trained: int) -> list[dict[str, str]]:
        rows = [single("a", "b", {"f1": 0.5}, lr=1e-3, trained_parameters=n) for n in trained]
        return setting_cells([*rows, single("no model", "mean", {"f1": 0.1})])

    assert [row["lr"] for row in shown(1_000, 1_000)] == ["0.001", "0.001", ""]
    assert "trained parameters" not in shown(1_000, 1_000)[0]
    names = [row["trained parameters"] for row in shown(1_000, 2_000)]
    assert names == ["1,000", "2,000", ""]


def test_a_mean_over_seeds_with_an_undefined_score_is_undefined_and_says_so_once() -> None:
    about = {"epoch": 1, "lr": 1e-3, "trained_parameters": 9, "skipped_steps": 0}
    scores = [{"pearson": 0.9, "rmse": 1.0}, {"pearson": math.nan, "rmse": 2.0}]
    finals = [single("pretrained", "full", row, seed=n, **about) for n, row in enumerate(scores, 1)]
    read = [Scores.of(json.loads(stored.to_json(final.as_row()))) for final in finals]
    assert math.isnan(read[1]["pearson"])
    assert list(map(str, summarise(read).metrics.values())) == ["–", "1.500 ± 0.707"]
    assert undefined_notes([[SeedResult([], one, Regress()) for one in read]]) == [
        "pretrained, full: pearson undefined for 1 of 2 seeds (2), since all predictions or all "
        "labels are equal; so is the mean over seeds"
    ]
    worse = [*read, single("pretrained", "full", {"pearson": -0.1}, seed=3)]
    baseline = single("no model", "mean", {"pearson": math.nan})
    (note,) = stuck_notes(worse, [baseline], "", Regress())
    assert note.startswith("1 of 3 seeds (3) are no better than 'mean' by pearson")


def test_of_two_errors_the_lower_one_is_better() -> None:
    baselines = [single("no model", "mean", {"pearson": 0.0, "rmse": 1.5})]
    finals = [
        single("pretrained", "full", {"pearson": 0.9, "rmse": error}, seed=n)
        for n, error in enumerate([1.2, 1.8], 1)
    ]
    (note,) = stuck_notes(finals, baselines, "rmse", Regress())
    assert note.startswith("1 of 2 seeds (2) are no better than 'mean' by rmse; likely --lr is")
    assert as_gain("rmse", 1.2) > as_gain("rmse", 1.8)  # where the task is not known too
    assert as_gain("perplexity", 20.0, Classify()) > as_gain("perplexity", 10.0, Classify())
