"""Several labels a text: how they are read, scored, weighted and predicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics

import foreword
from foreword.errors import UserError
from foreword.evaluation.calibration import best_threshold
from foreword.tables.columns import Columns
from foreword.tables.examples import Labelled
from foreword.tuning.encoded import ExampleOutputs
from foreword.tuning.example_reader import unused_columns
from foreword.tuning.scores import by_label
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tasks.multilabel import Multilabel, labels_of
from tests.frames import Frame
from tests.tuning.runs import make_run, reviews

FAST: dict[str, Any] = {
    "strategy": "full",
    "seeds": 1,
    "epochs": 1,
    "device": "cpu",
    "progress": False,
}
TEXTS = [e.text for e in reviews(40, 1)]
SETS = [
    [name for name, words in (("good", ["lovely", "fine", "warm"]), ("day", ["day"]))
     if any(word in text.split() for word in words)]
    for text in TEXTS
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("sets") / "run")


def test_scores_equal_scikit_learns() -> None:
    random = np.random.default_rng(1)
    outputs = random.normal(0, 2, (50, 4)).astype(np.float32)
    right = outputs + random.normal(0, 2, (50, 4)) > 1
    right[:, 3] = False  # a label that no dev example has
    targets = right[:, None].astype(np.float32)
    task = Multilabel(thresholds=(0.3, 0.5, 0.7, 0.9), temperature=2.0)
    predicted = 1 / (1 + np.exp(-outputs / 2)) >= [0.3, 0.5, 0.7, 0.9]
    scores = task.judge.scores(outputs, targets)
    for average in ("micro", "macro"):
        expected = metrics.f1_score(right, predicted, average=average, zero_division=0)
        assert scores[f"{average}_f1"] == pytest.approx(expected)
    assert scores["exact_match"] == pytest.approx(metrics.accuracy_score(right, predicted))
    rows = by_label(list("abcd"), task.judge.confusion(outputs, targets))
    expected = metrics.f1_score(right, predicted, average=None, zero_division=0)
    assert [row["f1"] for row in rows] == pytest.approx(expected.tolist())
    assert [row["precision"] for row in rows] == pytest.approx(
        metrics.precision_score(right, predicted, average=None, zero_division=0).tolist()
    )


def test_the_loss_is_torchs_with_and_without_weights() -> None:
    outputs = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    targets = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 0], [1, 0, 1.0]])
    labels = ("a", "b", "c")
    of = torch.nn.functional.binary_cross_entropy_with_logits
    for weights, expected in (((), None), ("balanced", [1.0, 2.0, 5.0]), (("b=3",), [1, 3.0, 1])):
        task = Multilabel(weights=weights).prepared(targets[:, None].numpy(), labels)
        loss = task.loss(outputs, targets, torch.arange(6))
        weight = None if expected is None else torch.tensor(expected)
        right = of(outputs, targets, pos_weight=weight)
        assert loss.total.item() / loss.count.item() == pytest.approx(right.item())


def test_thresholds_have_the_highest_f1() -> None:
    random = np.random.default_rng(2)
    for _ in range(6):
        shares = random.integers(1, 12, 30) / 12  # with ties
        right = random.random(30) < shares**2
        found = best_threshold(shares, right)
        best = max(
            metrics.f1_score(right, shares >= t, zero_division=0) for t in np.linspace(0, 1, 49)
        )
        assert metrics.f1_score(right, shares >= found, zero_division=0) == pytest.approx(best)
    assert best_threshold(shares, np.zeros(30, bool)) == 0.5


def test_thresholds_are_fitted_on_what_is_held_out() -> None:
    random = np.random.default_rng(3)
    right = random.random((400, 3)) < [0.3, 0.2, 0.005]
    outputs = (6 * right - 5 + random.normal(0, 2, right.shape)).astype(np.float32)
    task = Multilabel()
    fitted = Multilabel(**task.answers.fitted(outputs, right[:, None]))
    assert len(fitted.thresholds) == 3 and fitted.temperature is not None
    before, after = (t.judge.scores(outputs, right[:, None]) for t in (task, fitted))
    assert after["micro_f1"] > before["micro_f1"] + 0.02
    # The rare label has the threshold that is best for all together.
    common = fitted.answers.shares(outputs) >= fitted.thresholds[2]
    best = metrics.f1_score(right, common, average="micro")
    assert best >= metrics.f1_score(right, outputs >= 0, average="micro")
    assert fitted.answers.calibration_error(
        outputs, right[:, None]
    ) < task.answers.calibration_error(outputs, right[:, None])
    # What is given is not fitted.
    assert Multilabel(thresholds=(0.2,), temperature=1.0).answers.fitted(outputs, right) == {}


def test_a_label_that_is_not_learned_takes_the_common_threshold() -> None:
    random = np.random.default_rng(4)
    right = random.random((600, 2)) < [0.4, 0.05]
    outputs = random.normal(-2, 1, right.shape) + [[4, 0]] * right  # nothing tells the second
    thresholds = Multilabel(temperature=1.0).answers.fitted(outputs, right)["thresholds"]
    shares = 1 / (1 + np.exp(-outputs))
    assert thresholds == (
        best_threshold(shares[:, 0], right[:, 0]),
        best_threshold(shares.ravel(), right.ravel()),
    )
    assert best_threshold(shares[:, 1], right[:, 1]) < thresholds[1]


@pytest.mark.parametrize(
    ("label", "labels"),
    [
        ('["b", "a", "b"]', ("b", "a")),
        ("['a', \"it's\"]", ("a", "it's")),  # as pandas writes lists in CSV
        ("[1, 2.0]", ("1", "2")),
        ("[]", ()),
        ("a | b", ("a", "b")),
        ("a", ("a",)),
        ("[unclear]", ("[unclear]",)),
    ],
)
def test_the_labels_of_a_cell(label: str, labels: tuple[str, ...]) -> None:
    assert labels_of(label) == labels


@pytest.mark.parametrize(
    ("labels", "are_sets"),
    [
        (["a", "b", "a"], False),
        (["a", "a|b", "b"], True),
        (["a|b", "c|d"], False),  # names with a bar
        (['["a"]', "b"], True),
        (["[x]", "[y]"], False),
    ],
)
def test_classify_is_multilabel_where_labels_are_lists(labels: list[str], are_sets: bool) -> None:
    examples = [Labelled("x", label) for label in labels]
    task = Classify(pooling="mean", dropout=0.2, threshold=0.3, weights="balanced")
    found = task.for_examples(Columns(), examples)
    expected = Multilabel(pooling="mean", dropout=0.2, thresholds=(0.3,), weights="balanced")
    assert found == (expected if are_sets else task)
    if are_sets:
        with pytest.raises(UserError, match=r"task\.positive: is for one label a text"):
            Classify(positive="a").for_examples(Columns(), examples)


def write(folder: Path, form: str) -> tuple[Any, dict[str, str]]:
    """Return the examples in a form, and the arguments that read it."""
    file = folder / f"train.{form.partition(' ')[0]}"
    joined = [" | ".join(labels) or "[]" for labels in SETS]
    if form == "jsonl":
        rows = [{"text": t, "label": s} for t, s in zip(TEXTS, SETS, strict=True)]
        file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    elif form == "tsv":
        lines = [f"{t}\t{s}" for t, s in zip(TEXTS, joined, strict=True)]
        file.write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")
    elif form == "csv flags":
        lines = [
            f"{t},{int('good' in s)},{int('day' in s)}" for t, s in zip(TEXTS, SETS, strict=True)
        ]
        file.write_text("\n".join(["text,good,day", *lines]), encoding="utf-8")
        return file, {"label": "good,day"}
    elif form == "frame":
        return Frame({"text": TEXTS, "label": SETS}), {}
    else:
        return list(zip(TEXTS, SETS, strict=True)), {}
    return file, {}


def test_every_form_of_lists_gives_the_same_model(run: Path, tmp_path: Path) -> None:
    rows = []
    for form in ("jsonl", "tsv", "csv flags", "frame", "tuples"):
        train, how = write(tmp_path, form)
        result = foreword.tune(run, train, train, name=form, **how, **FAST)
        assert result.load("cpu").labels == ("day", "good")
        rows.append([{**row, "seconds": 0} for row in result.rows])
        if how:  # the columns are remembered
            again = foreword.evaluate_tuned(result.out, device="cpu", progress=False)
            assert again.rows[0]["micro_f1"] == pytest.approx(result.rows[0]["micro_f1"])
            assert [row["label"] for row in again.content["by_label"]] == ["day", "good"]
    assert all(row == rows[0] for row in rows)


def test_predictions_are_lists_and_probabilities_are_by_label(run: Path, tmp_path: Path) -> None:
    train = list(zip(TEXTS, SETS, strict=True))
    how = {**FAST, "epochs": 8, "lr": 3e-3}
    result = foreword.tune(run, train, train, name="sets", compare=False, **how)
    assert result.rows[0]["micro_f1"] > 0.8
    model = result.load("cpu")
    labels, shares = model.predict([*TEXTS, ""])
    assert shares.shape == (41, 2) and labels[-1] is None and np.isnan(shares[-1]).all()
    expected = [[model.labels[n] for n in np.argsort(-s) if s[n] >= 0.5] for s in shares[:-1]]
    assert labels[:-1] == expected
    assert [] in labels
    rows = foreword.predict(model, TEXTS, probabilities=True, progress=False).rows
    assert [row["prediction"] for row in rows] == labels[:-1]
    assert [row["probability_good"] for row in rows] == pytest.approx(shares[:-1, 1].tolist())
    out = tmp_path / "all.csv"
    done = foreword.predict(model, TEXTS, out=out, threshold=1e-6, progress=False)
    assert done.counts.labels == {"good": 40, "day": 40}
    assert done.notes[0] == "a label is predicted from a probability of 1e-06 on"
    assert '"[""' in out.read_text(encoding="utf-8")


def test_wrong_labels_are_refused(run: Path, tmp_path: Path) -> None:
    train = list(zip(TEXTS, SETS, strict=True))
    with pytest.raises(
        UserError, match=r"dev\[0\]: labels that no training example has: 'x' \(1\)"
    ):
        foreword.tune(run, train, [("a day", ["x", "day"])], name="unseen", **FAST)
    file = tmp_path / "a.csv"
    file.write_text("text,a,b\nx,1,0\ny,2,1\nz,,\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.csv:3: 'a' must be 0 or 1, got '2'"):
        foreword.tune(run, file, file, label="a,b", name="flags", bad_rows=0, **FAST)
    with pytest.raises(UserError, match=r"a\.csv: no column 'c'"):
        foreword.tune(run, file, file, label="a,c", name="flags", **FAST)
    with pytest.raises(UserError, match="expected one, or one for each of 2 labels, got 3"):
        Multilabel(thresholds=(0.1, 0.2, 0.3)).labels([Labelled("x", "a|b")])


def test_a_column_of_zeros_is_named(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    rows = [f"{e.text},{n % 2},0" for n, e in enumerate(reviews(8, 1))]
    file.write_text("\n".join(["text,a,b", *rows]), encoding="utf-8")
    result = foreword.tune(run, file, file, label="a,b", name="zeros", **FAST)
    said = ["no training example has 1 in b, so the model never predicts it"]
    assert said[0] in result.content["notes"] and list(result.content["labels"]) == ["a"]
    examples = [Labelled("x", '["a"]'), Labelled("y", '["a", "c"]')]
    assert unused_columns("a, b, c", examples) == said
    assert unused_columns("a,c", examples) == unused_columns("labels", examples) == []


def test_a_bag_of_words_stands_beside(run: Path) -> None:
    train = list(zip(TEXTS, SETS, strict=True))
    result = foreword.tune(run, train, train, name="compare", compare=True, **FAST)
    names = [row["strategy"] for row in result.rows]
    assert names[3:] == [
        "bag of words (TF-IDF, logistic regression)",
        "frequency of each label",
        "most frequent set",
    ]
    assert result.rows[3]["micro_f1"] > 0.9


def test_the_answer_to_an_example_begins_with_its_likeliest_label() -> None:
    result = ExampleOutputs(Labelled("x"), [], np.array([[0.1, 2.0, -3.0]], np.float32))
    (row,) = Multilabel().answers.rows([result], ("a", "b", "c"), probabilities=False)
    assert row["prediction"] == ["b", "a"]
    assert row["probability"] == pytest.approx([0.8808, 0.525], abs=1e-3)
