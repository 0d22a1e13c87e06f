"""The inputs that `classify` pools and refuses, and its scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from foreword.errors import UserError
from foreword.runs.trained_model import open_run
from foreword.tuning.input_template import template_of
from foreword.tuning.labelled import Labelled
from foreword.tuning.tasks.classify import Classify
from tests.tuning.runs import make_run


def test_scores_equal_scikit_learns() -> None:
    random = np.random.default_rng(1)
    targets = random.integers(0, 2, 60)
    outputs = random.normal(0, 1, (60, 2))
    outputs[np.arange(60), targets] += 1
    predicted, scores = outputs.argmax(1), Classify().scores(outputs, targets)
    assert scores["matthews"] == pytest.approx(metrics.matthews_corrcoef(targets, predicted))
    assert scores["accuracy"] == pytest.approx((predicted == targets).mean())
    assert 0 < scores["matthews"] < scores["accuracy"] < 1


@pytest.mark.filterwarnings("error")
def test_scores_of_a_single_label_raise_no_warning() -> None:
    outputs, targets = np.tile([0.0, 1.0], (5, 1)), np.ones(5, np.int64)
    assert Classify().scores(outputs, targets) == {"accuracy": 1.0, "f1": 1.0, "matthews": 0.0}


def test_mean_pooling_gives_one_output_of_many_positions(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path), "cpu")
    template = template_of(trained.recipe, trained.vocab, None)
    examples = [Labelled("the day was fine", pair="we saw"), Labelled("the day", pair="warm")]
    encoded = Classify(pooling="mean").encode(examples, trained.tokenizer, template)
    assert [e.pooled_positions.tolist() for e in encoded] == [[1, 2, 3, 4, 6, 7], [1, 2, 4]]
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
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Classify(**settings)
