"""What is fitted and scored on examples that were held out: temperatures, thresholds, folds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax

import foreword
from foreword.errors import UserError
from foreword.evaluation.calibration import calibration_error
from foreword.tables.examples import Labelled
from foreword.tuning.drawing import folds, held_out
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tasks.multilabel import Multilabel
from foreword.tuning.tasks.regress import Regress
from tests.frames import Frame
from tests.tuning.runs import make_run, reviews

FAST: dict[str, Any] = {
    "strategy": "full", "seeds": 1, "epochs": 2, "lr": 3e-3, "device": "cpu", "progress": False,
}  # fmt: skip
TRAIN = [(e.text, e.label) for e in reviews(260, 1)]
DEV = [(e.text, e.label) for e in reviews(40, 2)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("held") / "run")


def weights(model: Any) -> dict[str, torch.Tensor]:
    return dict(model.network.named_parameters())


def test_folds_hold_every_example_out_once() -> None:
    examples = [Labelled(f"t{n}", "ab"[n % 4 == 0], group=f"g{n // 4}") for n in range(48)]
    for part in (examples, [e._replace(group="") for e in examples]):
        splits = folds(part, 4, Classify())
        assert sorted(n for s in splits for n in s.held.tolist()) == list(range(48))
        for split in splits:
            assert Counter(part[n].label for n in split.held) == {"a": 9, "b": 3}
            assert not {part[n].group for n in split.held} & {
                part[n].group for n in split.numbers if part[n].group
            }
    sets = [Labelled(f"t{n}", ["a|b", "a", "[]"][n % 3]) for n in range(30)]
    held = [Counter(sets[n].label for n in s.held) for s in folds(sets, 5, Multilabel())]
    assert held == [{"a|b": 2, "a": 2, "[]": 2}] * 5
    numbers = [Labelled(f"t{n}", str(n)) for n in range(10)]
    assert [len(s.held) for s in folds(numbers, 3, Regress())] == [4, 3, 3]
    with pytest.raises(UserError, match="--folds: 13, but there are 12 groups of training"):
        folds(examples, 13, Classify())


@pytest.mark.parametrize(("count", "held"), [(249, 0), (250, 50), (2000, 200), (90_000, 5000)])
def test_a_part_is_held_out_where_there_is_enough(count: int, held: int) -> None:
    examples = [Labelled("t", "ab"[n % 2]) for n in range(count)]
    split = held_out(np.arange(count), examples, Classify())
    assert (0 if split is None else len(split.held)) == held
    if split is not None:
        assert sorted([*split.held, *split.numbers]) == list(range(count))
        assert sum(n % 2 for n in split.held) == held // 2


def test_a_temperature_changes_probabilities_alone(run: Path) -> None:
    plain = foreword.tune(run, TRAIN, DEV, name="plain", settings={"tune.calibrate": False}, **FAST)
    result = foreword.tune(run, TRAIN, DEV, name="calibrated", **FAST)
    assert result.rows == plain.rows and "calibration" not in plain.content
    one, other = plain.load("cpu"), result.load("cpu")
    assert all(torch.equal(p, weights(other)[name]) for name, p in weights(one).items())
    texts = [text for text, _ in DEV]
    (labels, shares), outputs = other.predict(texts), other.outputs(texts)
    assert labels == one.predict(texts)[0]
    about = result.content["calibration"]
    assert (about["on"], about["examples"], about["bins"]) == ("held out", 50, 15)
    assert other.task.temperature == about["temperature"] != 1.0
    expected = softmax(outputs / about["temperature"], axis=1)
    np.testing.assert_allclose(shares, expected, atol=1e-6)
    targets = np.array([other.labels.index(label) for _, label in DEV])
    assert about["error"] == pytest.approx(calibration_error(expected, targets), abs=1e-6)
    before = calibration_error(softmax(outputs, axis=1), targets)
    assert about["error_before"] == pytest.approx(before, abs=1e-6)
    (line,) = (str(p) for p in result.tables() if "calibration error" in str(p))
    assert f"temperature {about['temperature']:.2f}" in line


def test_too_few_examples_are_said(run: Path) -> None:
    result = foreword.tune(run, TRAIN[:40], DEV, name="few", **FAST)
    assert result.load("cpu").task.temperature is None
    assert any("40 training examples are too few" in note for note in result.content["notes"])


def test_folds_score_every_example_and_the_saved_model_learns_from_all(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = foreword.tune(run, TRAIN, folds=3, test=DEV, name="folds", compare=True, **FAST)
    same = foreword.tune(run, TRAIN, DEV, name="all", settings={"tune.calibrate": False}, **FAST)
    saved = result.load("cpu")
    assert all(torch.equal(p, weights(saved)[n]) for n, p in weights(same.load("cpu")).items())
    row = result.rows[0]
    assert row["seeds"] == 3 and row["accuracy_std"] is not None and row["accuracy"] > 0.6
    assert row["test_accuracy"] == same.rows[0]["accuracy"] and row["test_accuracy_std"] is None
    assert sum(map(sum, result.content["confusion"])) == 260
    names = [each["strategy"] for each in result.rows]
    assert names[3:] == ["bag of words (TF-IDF, logistic regression)", "majority class"]
    assert result.rows[3]["accuracy"] > 0.9
    assert [m["seeds"] for m in result.content["margins"]] == [1] * 4  # over examples
    about = result.content["calibration"]
    assert (about["on"], about["examples"]) == ("folds", 260)
    assert saved.task.temperature == about["temperature"]
    assert any("learned from other folds" in str(part) for part in result.tables())
    with pytest.raises(UserError, match="was scored in folds; --data names"):
        foreword.evaluate_tuned(result.out, progress=False)
    # What is done is not done again.
    monkeypatch.setattr("foreword.tuning.fine_tuner.FineTuner.loop", None)
    again = foreword.tune(run, TRAIN, folds=3, test=DEV, name="folds", compare=True, **FAST)
    assert again.rows == result.rows


def test_thresholds_of_folds_are_those_of_other_folds(run: Path) -> None:
    sets = [
        (e.text, [name for name in ("day", "film", "lovely") if name in e.text.split()])
        for e in reviews(120, 3)
    ]
    how = {**FAST, "lr": 1e-2, "epochs": 3}
    result = foreword.tune(run, sets, folds=3, name="sets", **how)
    saved = result.load("cpu")
    assert len(saved.task.thresholds) == 3
    assert saved.task.thresholds == tuple(result.content["calibration"]["thresholds"])
    plain = foreword.tune(
        run, sets, folds=3, name="half", settings={"tune.calibrate": False}, **how
    )
    assert plain.load("cpu").task.thresholds == ()
    assert result.rows[0]["micro_f1"] != plain.rows[0]["micro_f1"]
    assert np.sum(result.content["confusion"]) == 3 * 120


def test_numbers_are_cross_validated(run: Path) -> None:
    train = [(text, float(label == "good") * 2 + 1) for text, label in TRAIN[:60]]
    result = foreword.tune(run, train, folds=2, task="regress", name="numbers", **FAST)
    assert {"pearson", "pearson_std"} <= result.rows[0].keys()
    assert len(result.load("cpu").outputs(["a fine day"])) == 1


def test_groups_are_named_by_a_column(run: Path) -> None:
    frame = Frame(
        {
            "text": [text for text, _ in TRAIN[:40]],
            "label": [label for _, label in TRAIN[:40]],
            "author": [f"{n // 10}" for n in range(40)],
        }
    )
    result = foreword.tune(run, frame, folds=4, group="author", name="groups", **FAST)
    assert result.content["settings"]["data"]["group"] == "author"
    with pytest.raises(UserError, match="--folds: 5, but there are 4 groups"):
        foreword.tune(run, frame, folds=5, group="author", name="groups5", **FAST)
    for how, message in (
        ({}, "--dev: required"),
        ({"folds": 4, "dev": frame}, "--folds: scores parts of --train"),
        ({"dev": frame, "group": "author"}, "--group: requires --folds"),
        ({"folds": 4, "strategy": "best"}, "strategy best has folds of its own"),
        ({"folds": 4, "settings": {"tune.keep": "best"}}, "no example is left to choose"),
        ({"folds": 4, "examples": 10}, "leave examples out"),
    ):
        with pytest.raises(UserError, match=message):
            foreword.tune(run, frame, name="refused", **FAST | how)
