from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from foreword.disk import manifest
from foreword.errors import UserError
from foreword.runs.run_folder import open_run
from foreword.tables.examples import Labelled
from foreword.tuning.open_tuned import open_tuned
from foreword.tuning.settings import TuneSettings
from foreword.tuning.strategies._contract import Strategy
from foreword.tuning.strategies.frozen import Frozen
from foreword.tuning.strategies.full import Full
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tasks.regress import Regress
from foreword.tuning.tune_result import save_network
from foreword.tuning.tuned_model import load_tuned
from tests.tuning.runs import LAYOUTS, make_run, reviews, tune


@pytest.mark.product(only=("encoder_decoder",))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tuned_model_loads_back_and_predicts_as_it_scored(tmp_path: Path, layout: str) -> None:
    trained = open_run(make_run(tmp_path / "run", layout), "cpu")
    settings = TuneSettings(strategy=Full(lr=3e-3), seeds=1, epochs=2, max_length=24)
    dev = reviews(40, 2)
    result = tune(trained, Classify(), reviews(100, 1), dev, settings)
    save_network(result, tmp_path / "tuned")
    classifier = load_tuned(tmp_path / "tuned", "cpu")
    assert classifier.template == result.template
    labels, probabilities = classifier.predict([e.text for e in dev])
    right = np.mean([label == e.label for label, e in zip(labels, dev, strict=True)])
    assert right == pytest.approx(result.rows[0]["accuracy"])
    assert probabilities.shape == (40, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    alone, _ = classifier.predict([dev[7].text])
    assert alone == [labels[7]]
    assert classifier.predict([])[0] == []


@pytest.mark.product(few=2)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("strategy", [Full(lr=3e-3), Frozen(lr=1e-2)], ids=["full", "frozen"])
@pytest.mark.parametrize(
    "task", [Classify(), Classify(mix_layers=True), Regress()], ids=["classify", "mixed", "regress"]
)
def test_scores_are_computed_from_the_exact_predictions(
    tmp_path: Path, task: Task, strategy: Strategy, precision: Literal["fp32", "bf16"]
) -> None:
    trained = open_run(make_run(tmp_path / "run"), "cpu")
    train, dev = ([numbered(e, task) for e in reviews(count, count)] for count in (60, 300))
    settings = TuneSettings(strategy=strategy, seeds=1, epochs=1, precision=precision)
    result = tune(trained, task, train, dev, settings)
    save_network(result, tmp_path / "tuned")
    classifier = load_tuned(tmp_path / "tuned", "cpu")
    outputs = classifier.outputs([example.text for example in dev])
    scores = task.judge.scores(outputs, task.targets(dev, result.labels))
    assert scores == result.rows[0].means


def numbered(example: Labelled, task: Task) -> Labelled:
    """The same with a number for a label, where the task gives numbers."""
    if isinstance(task, Classify):
        return example
    return example._replace(label=str(len(example.text) + (example.label == "good") / 3))


def test_folders_without_a_tuned_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="was pretrained and not fine-tuned"):
        open_tuned(make_run(tmp_path / "run"))
    with pytest.raises(UserError, match="not a fine-tuned model"):
        open_tuned(tmp_path)
    with pytest.raises(UserError, match="missing: no such folder"):
        open_tuned(tmp_path / "missing")


def test_a_model_of_an_older_version_is_refused(tmp_path: Path) -> None:
    """Version 1 left special tokens out of means, so it would give other answers."""
    trained = open_run(make_run(tmp_path / "run"), "cpu")
    settings = TuneSettings(strategy=Full(lr=3e-3), seeds=1, epochs=1)
    result = tune(trained, Classify(), reviews(40, 1), reviews(20, 2), settings)
    folder = tmp_path / "tuned"
    save_network(result, folder)
    assert load_tuned(folder, "cpu").labels == result.labels
    (folder / manifest.FILE).unlink()
    manifest.write(folder, "tuned", 1)
    with pytest.raises(UserError, match="version 1; this Foreword reads version 2: make it again"):
        load_tuned(folder, "cpu")
