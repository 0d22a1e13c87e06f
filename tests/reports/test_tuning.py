"""Learning curves, confusions and suites of fine-tuning on the page."""

from __future__ import annotations

import math
from typing import Any

import pytest

from foreword.reports.evaluations import evaluation_section
from foreword.reports.folder import SavedEvaluation
from foreword.reports.tuning_curves import confusion, curves
from tests.reports.test_page import figures_of

ROW = {"start": "pretrained", "strategy": "full", "accuracy": 0.7, "accuracy_std": 0.01, "lr": 1e-4}


def evaluation(**content: Any) -> SavedEvaluation:
    return SavedEvaluation("x", "Fine-tuning: x", "classify", "", (ROW,), content=content)


def epochs(
    scores: dict[int, list[float]], strategy: str = "full", loss: float | None = 0.5
) -> list[dict[str, Any]]:
    """A row for each epoch of each seed."""
    return [
        {
            "start": "pretrained",
            "strategy": strategy,
            "seed": seed,
            "epoch": epoch,
            "accuracy": score,
            "train_loss": loss,
        }
        for seed, curve in scores.items()
        for epoch, score in enumerate(curve, 1)
    ]


def drawn(**content: Any) -> list[list[Any]]:
    """Return what is in each chart of the curves."""
    return [one["series"] for one in figures_of(curves(evaluation(**content), "accuracy"))]


def heights(line: Any) -> list[float]:
    return [y for _, y in line["points"]]


def test_each_seed_has_a_curve_and_their_mean_one_more() -> None:
    rows = epochs({1: [0.5, 0.7], 2: [0.6, 0.9]})
    page = curves(evaluation(epochs=rows), "accuracy")
    assert "Accuracy on the dev examples by epoch" in page
    assert "Training loss by epoch" in page
    scores, losses = drawn(epochs=rows)
    assert [(line["style"], heights(line)) for line in scores] == [
        ("faint", [0.5, 0.7]),
        ("faint", [0.6, 0.9]),
        ("dots", pytest.approx([0.55, 0.8])),
    ]
    assert [heights(line) for line in losses] == [[0.5, 0.5]] * 3


def test_a_seed_that_stopped_early_is_in_the_means_it_reached() -> None:
    scores, _ = drawn(epochs=epochs({1: [0.5, 0.7, 0.8], 2: [0.6, 0.9]}))
    assert heights(scores[-1]) == pytest.approx([0.55, 0.8, 0.8])


def test_compared_variants_have_colours_and_names() -> None:
    rows = epochs({1: [0.5, 0.7]}) + epochs({1: [0.4, 0.5]}, "frozen")
    rows += [row | {"start": "from scratch"} for row in epochs({1: [0.3, 0.4]})]
    assert [(line["name"], line["colour"]) for line in drawn(epochs=rows)[0]] == [
        ("pretrained", "var(--accent)"),
        ("pretrained, frozen", "var(--cell2)"),
        ("from scratch", "var(--second)"),
    ]


@pytest.mark.parametrize("rows", [epochs({1: [0.5]}), [], None, "x", [1, {"epoch": "x"}]])
def test_a_single_epoch_and_what_is_no_list_have_no_curve(rows: Any) -> None:
    assert curves(evaluation(epochs=rows), "accuracy") == ""


def test_a_loss_that_was_never_finite_has_no_plot() -> None:
    assert len(drawn(epochs=epochs({1: [0.5, 0.7]}, loss=math.nan))) == 1


def test_the_confusion_matrix_has_the_share_of_each_label() -> None:
    page = confusion(evaluation(labels=["bad", "good"], confusion=[[30, 10], [0, 20]]))
    for text in (">75 %<", ">25 %<", ">0 %<", ">100 %<", ">bad<", ">good<"):
        assert text in page
    assert "the share of each label, over all seeds" in page


def test_a_label_that_no_example_has_is_no_division_by_zero() -> None:
    assert ">0 %<" in confusion(evaluation(labels=["a", "b"], confusion=[[0, 0], [1, 2]]))


def test_of_many_labels_the_most_frequent_mistakes_are_listed() -> None:
    labels = [f"label {n}" for n in range(20)]
    counts = [[80 if n == m else 0 for m in range(20)] for n in range(20)]
    counts[3][4], counts[7][1] = 20, 5
    page = confusion(evaluation(labels=labels, confusion=counts))
    assert "<figure" not in page
    assert page.index(">label 3<") < page.index(">label 7<")
    assert ">20%<" in page


@pytest.mark.parametrize(
    "matrix", [None, [[1, 2]], [[1], [2]], [[1, "x"], [2, 3]], [[-1, 2], [0, 1]], 5]
)
def test_what_is_no_matrix_is_left_out(matrix: Any) -> None:
    assert confusion(evaluation(labels=["a", "b"], confusion=matrix)) == ""


def test_a_suite_is_in_percent_with_each_task_folded_under_it() -> None:
    rows = (
        {
            "task": "RTE",
            "metric": "accuracy",
            "this model": 0.61234,
            "this model_std": 0.0123,
            "lr": 1e-4,
            "baseline": 0.527,
            "bag of words": None,
            "BERT-base (test)": 0.664,
        },
    )
    tasks = {
        "RTE": {"rows": [ROW], "labels": ["no", "yes"], "confusion": [[3, 1], [2, 2]]},
        "damaged": {"rows": "x"},
    }
    published = {"BERT-base": "a paper"}
    one = SavedEvaluation(
        "tune-suite-glue", "Fine-tuning: glue", "suite", "", rows,
        content={"tasks": tasks, "published": published},
    )  # fmt: skip
    page = evaluation_section(one)
    for text in ("61.2 ± 1.2", ">52.7<", ">66.4<", "BERT-base: a paper", "<summary>RTE</summary>"):
        assert text in page
    assert ">75 %<" in page
    assert "bag of words" not in page
    assert "damaged" not in page
