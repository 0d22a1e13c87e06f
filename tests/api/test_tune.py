"""`foreword.tune` with examples in every form that a caller may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from foreword import tune
from foreword.errors import UserError
from foreword.tuning.tuned_model import TunedModel
from tests.frames import Frame
from tests.tuning.runs import make_run, reviews

FAST: dict[str, Any] = {
    "strategy": "full", "seeds": 1, "epochs": 1, "device": "cpu", "progress": False,
}  # fmt: skip
TEXTS = [e.text for e in reviews(12, 1)]
LABELS = [e.label for e in reviews(12, 1)]
NUMBERS = [int(label == "good") for label in LABELS]
PAIRS = list(zip(TEXTS, LABELS, TEXTS[::-1], strict=True))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("tune") / "run")


def scores_of(run: Path, train: Any, **settings: Any) -> dict[str, Any]:
    """The scores and labels of a model tuned on examples, without what names it."""
    name = f"n{len(list((run / 'tuned').glob('*')))}"
    result = tune(run, train, list(zip(TEXTS, LABELS, strict=True)), name=name, **FAST, **settings)
    tuned = result.load("cpu")
    assert isinstance(tuned, TunedModel)
    return {"labels": tuned.labels, "rows": [{**row, "seconds": 0} for row in result.rows]}


@pytest.mark.full
def test_every_form_of_examples_gives_the_same_model(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "train.tsv"
    lines = [f"{text}\t{label}" for text, label in zip(TEXTS, LABELS, strict=True)]
    file.write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")
    expected = scores_of(run, file)
    assert expected["labels"] == ("bad", "good")
    columns = {"text": TEXTS, "label": LABELS, "n": NUMBERS}
    for given in (
        list(zip(TEXTS, LABELS, strict=True)),
        zip(TEXTS, LABELS, strict=True),
        [list(example) for example in zip(TEXTS, LABELS, strict=True)],
        np.array([TEXTS, LABELS]).T,
        Frame(columns),
        pa.table(columns),
        [Frame(columns)],
    ):
        assert scores_of(run, given) == expected


def test_a_score_that_the_task_has_not_is_refused_before_examples_are_read(run: Path) -> None:
    message = "tune.metric: 'bleu' is not a score of this task: accuracy, f1, matthews"
    with pytest.raises(UserError, match=message):
        tune(run, "absent.tsv", "absent.tsv", settings={"tune.metric": "bleu"}, **FAST)


@pytest.mark.product(few=2)
@pytest.mark.parametrize("kind", [int, float, np.int64, np.float32, bool])
def test_labels_may_be_numbers(kind: Any, run: Path) -> None:
    train = list(zip(TEXTS, map(kind, NUMBERS), strict=True))
    result = tune(run, train, train, name=f"numbers-{kind.__name__}", **FAST)
    tuned = result.load("cpu")
    assert isinstance(tuned, TunedModel)
    assert tuned.labels == (("false", "true") if kind is bool else ("0", "1"))


def test_regression_learns_from_numbers(run: Path) -> None:
    train = list(zip(TEXTS, np.linspace(0, 1, len(TEXTS)), strict=True))
    result = tune(run, train, train, task="regress", name="regression", **FAST)
    assert "pearson" in result.rows[0]
    assert result.content["settings"]["data"]["train"] == "12 examples given in Python"


def test_columns_of_a_table_are_chosen_by_name(run: Path) -> None:
    frame = Frame({"review": TEXTS, "stars": NUMBERS, "second": TEXTS[::-1]})
    how = {"text": "review", "label": "stars", "pair": "second"}
    tuned = tune(run, frame, frame, name="columns", **how, **FAST).load("cpu")
    assert isinstance(tuned, TunedModel)
    assert tuned.tuned_on.is_pair
    assert len(tuned.predict(frame)[0]) == len(TEXTS)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ([("a", "x"), (None, "y")], r"train\[1\]: expected a text, got None"),
        ([("a", "x"), ("b", None)], r"train\[1\]: expected a text or a number as label, got None"),
        ([("a", "x"), ("b", float("nan"))], r"train\[1\]: the label is missing"),
        ([("a", "x", "c", "d")], r"train\[0\]: expected \(text, label\), or \(text, label, second"),
        ([("a", "x"), "b"], r"train\[1\]: expected \(text, label\)"),
        ([("a", "x", "c"), ("b", "y")], r"train\[0\] has a second text, and train\[1\] has none"),
        ([("a", "x"), ("b", "y", "c")], r"train\[1\] has a second text, and train\[0\] has none"),
        ([("a", "x", None)], r"train\[0\]: expected a text, got None"),
        ([1, 2], r"train\[0\]: expected \(text, label\), or a file or table"),
        ({("a", "x"), ("b", "y")}, "train: a set has no order"),
        ({"text": TEXTS, "label": LABELS}, "train: expected a list of examples, got a dict"),
        (5, "train: expected a list of examples, got 5"),
        ([], "train: is empty"),
        (None, "train: expected a list of examples, got None"),
        (Frame({"sentence": TEXTS, "label": LABELS}), "train: no column 'text'; its columns: sen"),
        (PAIRS, "train, dev: pairs of texts in one, single texts in the other"),
    ],
)
def test_what_are_no_examples_is_refused(train: Any, message: str, run: Path) -> None:
    with pytest.raises(UserError, match=message):
        tune(run, train, list(zip(TEXTS, LABELS, strict=True)), name="refused", **FAST)
    assert not (run / "tuned" / "refused").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": "review"}, "text, label, pair: tuples have no columns"),
        ({"columns": "a,b"}, "columns: names the columns of files"),
    ],
)
def test_arguments_about_columns_are_refused_for_tuples(
    arguments: dict[str, Any], message: str, run: Path
) -> None:
    with pytest.raises(UserError, match=message):
        tune(run, PAIRS, PAIRS, name="refused", **arguments, **FAST)


def test_test_examples_are_scored_at_the_end_beside_the_dev_examples(run: Path) -> None:
    train = list(zip(TEXTS, LABELS, strict=True))
    result = tune(run, train, train, test=train[:5], name="tested", **FAST)
    row, *_, baseline = result.rows
    assert any("5 of the 5 test examples are training exa" in n for n in result.content["notes"])
    assert {"test_accuracy", "test_f1"} <= row.keys() & baseline.keys()
    assert result.content["settings"]["data"]["test"] == "5 examples given in Python"
    assert "test_accuracy" not in result.content["epochs"][0]
    with pytest.raises(UserError, match="train, dev, test: pairs of texts in one, single texts"):
        tune(run, train, train, test=PAIRS, name="refused", **FAST)
    with pytest.raises(UserError, match=r"test\[0\]: labels that no training example has"):
        tune(run, train, train, test=[("a", "else")], name="refused", **FAST)
