"""The inputs that `classify` pools and refuses, and its scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics

from foreword.errors import UserError
from foreword.runs.run_folder import open_run
from foreword.tables.examples import Labelled
from foreword.tuning.input_template import template_of
from foreword.tuning.tasks.classify import Classify
from tests.tuning.runs import make_run


def test_scores_equal_scikit_learns() -> None:
    random = np.random.default_rng(1)
    targets = random.integers(0, 2, 60)
    outputs = random.normal(0, 1, (60, 2))
    outputs[np.arange(60), targets] += 1
    predicted, scores = outputs.argmax(1), Classify().judge.scores(outputs, targets)
    assert scores["matthews"] == pytest.approx(metrics.matthews_corrcoef(targets, predicted))
    assert scores["accuracy"] == pytest.approx((predicted == targets).mean())
    assert 0 < scores["matthews"] < scores["accuracy"] < 1


@pytest.mark.filterwarnings("error")
def test_scores_of_a_single_label_raise_no_warning() -> None:
    outputs, targets = np.tile([0.0, 1.0], (5, 1)), np.ones(5, np.int64)
    assert Classify().judge.scores(outputs, targets) == {
        "accuracy": 1.0,
        "f1": 1.0,
        "matthews": 0.0,
    }


def test_mean_pooling_gives_one_output_of_many_positions(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path), "cpu")
    template = template_of(trained.recipe, trained.vocab, None)
    examples = [Labelled("the day was fine", pair="we saw"), Labelled("the day", pair="warm")]
    encoded = Classify(pooling="mean").encode(examples, trained.tokenizer, template)
    assert [e.pooled_positions.tolist() for e in encoded] == [
        [0, 1, 2, 3, 4, 5, 6, 7, 8],
        [0, 1, 2, 3, 4, 5],
    ]
    assert all(e.is_pooled for e in encoded)
    encoded = Classify(pooling="first").encode(examples, trained.tokenizer, template)
    assert [e.pooled_positions.tolist() for e in encoded] == [[0], [0]]
    assert not any(e.is_pooled for e in encoded)


def test_pairs_mixed_with_single_texts_are_refused(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path), "cpu")
    template = template_of(trained.recipe, trained.vocab, None)
    examples = [Labelled("the day", pair="we saw"), Labelled("the day", source="a.tsv:3")]
    with pytest.raises(UserError, match=r"a\.tsv:3: has no second text"):
        Classify().encode(examples, trained.tokenizer, template)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dropout": 1.0}, "dropout: must be a number of at least 0 and below 1"),
        ({"auxiliary": -0.5}, "auxiliary: must be a number from 0"),
        ({"weights": ("bad",)}, "weights: must be label=weight each, above 0, got 'bad'"),
        ({"weights": ("bad=-1",)}, "weights: must be label=weight each, above 0, got 'bad=-1'"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Classify(**settings)


def test_balanced_weights_count_each_class_alike() -> None:
    targets = np.array([0, 0, 0, 1])
    task = Classify(weights="balanced").prepared(targets, ("bad", "good"))
    assert task.weights == ("bad=0.6666666666666666", "good=2.0")
    loss = task.loss(torch.zeros(4, 2), torch.from_numpy(targets), torch.arange(4))
    assert loss.total.item() / loss.count.item() == pytest.approx(np.log(2))
    assert loss.count.item() == pytest.approx(4)
    # A mistake in the rare class costs as much as one in each of the three others.
    sure = torch.tensor([[9.0, 0.0]] * 4)
    only_rare = task.loss(sure, torch.from_numpy(targets), torch.arange(4)).total
    all_others = task.loss(-sure, torch.from_numpy(targets), torch.arange(4)).total
    assert only_rare.item() == pytest.approx(all_others.item(), rel=1e-3)


def test_given_weights_are_those_of_torch() -> None:
    targets = np.array([0, 1, 1, 2])
    task = Classify(weights=("b=3", "c=0.5")).prepared(targets, ("a", "b", "c"))
    outputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
    loss = task.loss(outputs, torch.from_numpy(targets), torch.arange(4))
    expected = torch.nn.functional.cross_entropy(
        outputs, torch.from_numpy(targets), torch.tensor([1.0, 3.0, 0.5])
    )
    assert loss.total / loss.count == pytest.approx(expected)


def test_a_weight_of_an_unknown_label_is_refused() -> None:
    with pytest.raises(UserError, match=r"task\.weights: no label 'spam'; training has: bad, good"):
        Classify(weights=("spam=2",)).prepared(np.array([0, 1]), ("bad", "good"))


def test_the_positive_labels_f1_is_scikit_learns() -> None:
    random = np.random.default_rng(1)
    task = Classify(positive="bad")
    labels = task.labels([Labelled("x", "bad"), Labelled("y", "good")])
    assert labels == ("good", "bad")
    targets, outputs = random.integers(0, 2, 40), random.normal(0, 1, (40, 2))
    names = np.array(labels)
    expected = metrics.f1_score(names[targets], names[outputs.argmax(1)], pos_label="bad")
    assert task.judge.scores(outputs, targets)["positive_f1"] == pytest.approx(expected)
    with pytest.raises(UserError, match=r"task\.positive: 'dull' must be one of two labels"):
        Classify(positive="dull").labels([Labelled("x", "bad"), Labelled("y", "good")])


def test_a_threshold_decides_between_two_labels() -> None:
    outputs, targets = np.array([[2.0, 1.0], [2.0, 0.0], [0.0, 3.0]]), np.array([1, 0, 1])
    task = Classify(threshold=0.25, temperature=1.0)  # 0.27, 0.12, 0.95
    assert Classify().judge.scores(outputs, targets)["accuracy"] == pytest.approx(2 / 3)
    assert task.judge.scores(outputs, targets)["accuracy"] == 1.0
    assert task.judge.confusion(outputs, targets) == [[1, 0], [0, 2]]
    # Twice the temperature, probabilities nearer to a half.
    hot = Classify(threshold=0.25, temperature=2.0)
    assert hot.judge.scores(outputs, targets)["accuracy"] == pytest.approx(2 / 3)
    with pytest.raises(UserError, match="here are 3, of which one is predicted"):
        task.labels([Labelled("x", label) for label in "abc"])
    baseline = task.judge.baselines(targets, targets, ("a", "b"))["majority class"]
    assert task.answers.shares(baseline)[0] == pytest.approx([1 / 3, 2 / 3])
