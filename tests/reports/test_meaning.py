"""What the pages say in words follows from the figures, also where they show nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest

from foreword.evaluation.statistics import Interval, Spread, difference
from foreword.reports.meaning import (
    comparison_sentences,
    gain_sentence,
    loss_sentence,
    pretraining_gain,
    score_sentence,
)


def row(what: str, loss: float | None, perplexity: float | None = 1.0) -> dict[str, Any]:
    return {"what": what, "loss": loss, "perplexity": perplexity}


def tuned(start: str, accuracy: float, deviation: float | None, seeds: int = 3) -> dict[str, Any]:
    strategy = {"start": start, "strategy": "full", "seeds": seeds}
    return {**strategy, "accuracy": accuracy, "accuracy_std": deviation}


def test_a_loss_is_said_as_a_probability_beside_that_of_counts() -> None:
    output = loss_sentence([row("m", 4.38), row("unigram counts", 6.51)], "masked token")
    assert "4.38 nats per masked token" in output
    assert "1 in 80" in output and "by its frequency alone, 1 in 670 (6.51 nats)" in output
    assert "has not learned" not in output


def test_a_loss_no_better_than_counts_is_said_to_be_none() -> None:
    pair = [row("bigram counts", 4.0), row("unigram counts", 6.0)]
    assert loss_sentence([row("m", 6.0), *pair], "token").endswith(
        "It has not learned more than frequencies tell."
    )
    assert loss_sentence([row("m", 5.0), *pair], "token").endswith(
        "not more than pairs of tokens do."
    )


def test_a_sum_of_losses_compares_the_token_loss() -> None:
    rows = [row("BERT", 5.0, None), row("BERT: masked", 4.38), row("unigram counts", 6.51)]
    output = loss_sentence(rows, "masked token")
    assert "the loss is 5.00 nats, a sum of which its tokens are 4.38 nats per masked" in output
    assert "1 in 80" in output
    output = loss_sentence(rows[:1], "masked token", "x.txt")
    assert output == "On x.txt the loss of the objective is 5.00 nats."


def test_a_missing_loss_has_no_meaning() -> None:
    assert loss_sentence([], "token") == ""
    assert loss_sentence([row("m", None)], "token") == ""


def test_pretraining_that_helps_adds_points_with_their_interval() -> None:
    rows = [tuned("pretrained", 0.80, 0.01), tuned("from scratch", 0.75, 0.01)]
    message = pretraining_gain(rows, "accuracy", 872)
    assert message.startswith("Pretraining adds 5.0 points of accuracy over the same network")
    assert "(95% interval +2.7 to +7.3)" in message
    assert "872 examples" in message and "± 3.3 points" in message


def test_a_margin_of_paired_answers_gives_the_interval() -> None:
    rows = [tuned("pretrained", 0.80, 0.01), tuned("from scratch", 0.75, 0.01)]
    ends = {"difference": 0.05, "low": 0.01, "high": 0.09}
    margins = [
        {"name": "pretrained, full", "over": "chance", "difference": 0.3, "low": 0.2, "high": 0.4},
        {"name": "pretrained, full", "over": "from scratch, full", **ends},
    ]
    message = pretraining_gain(rows, "accuracy", 872, margins)
    assert message.startswith("Pretraining adds 5.0 points of accuracy over the same network")
    assert "(95% interval +1.0 to +9.0)" in message
    assert message.endswith("The interval is over seeds of fine-tuning and examples.")


def test_an_interval_that_includes_zero_shows_nothing() -> None:
    rows = [tuned("pretrained", 0.76, 0.03), tuned("from scratch", 0.75, 0.03)]
    message = pretraining_gain(rows, "accuracy", 0)
    assert "includes zero, so these runs do not show that pretraining helps" in message
    assert "adds" not in message


def test_pretraining_that_hurts_costs_points() -> None:
    rows = [tuned("pretrained", 0.60, 0.01), tuned("from scratch", 0.75, 0.01)]
    assert pretraining_gain(rows, "accuracy", 0).startswith("Pretraining costs 15.0 points")


def test_one_seed_has_no_interval_and_may_be_chance() -> None:
    rows = [tuned("pretrained", 0.8, None, 1), tuned("from scratch", 0.7, None, 1)]
    message = pretraining_gain(rows, "accuracy", 872)
    assert "with one seed there is no interval over seeds" in message and "±" not in message


def test_scores_stand_beside_those_without_a_network() -> None:
    bag = {"start": "no network", "strategy": "bag of words", "accuracy": 0.82}
    chance = {"start": "no model", "strategy": "majority class", "accuracy": 0.5}
    message = score_sentence([tuned("pretrained", 0.8, 0.1), bag, chance], "accuracy")
    assert "80.0 % accuracy" in message and "majority class 50.0 % accuracy" in message
    assert message.endswith("It is no better than bag of words.")


def test_a_lower_perplexity_is_better() -> None:
    model = {"start": "pretrained", "strategy": "full", "perplexity": 40.0}
    unigrams = {"start": "no model", "strategy": "unigrams", "perplexity": 58.0}
    assert "no better" not in score_sentence([model, unigrams], "perplexity")
    assert score_sentence([model | {"perplexity": 60.0}, unigrams], "perplexity").endswith(
        "It is no better than unigrams."
    )
    bound = score_sentence([model | {"perplexity": 60.0, "is_bound": True}, unigrams], "perplexity")
    assert "reaches at most " in bound and "no better" not in bound
    said = gain_sentence(Interval(-5, 1, 3), "perplexity")
    assert said.startswith("Pretraining lowers perplexity by 5.000 against the same network")
    assert "raises perplexity by 5.000" in gain_sentence(Interval(5, 1, 3), "perplexity")


def test_a_correlation_is_not_said_in_points() -> None:
    assert "0.050 pearson" in gain_sentence(Interval(0.05, 0.01, 3), "pearson")


def test_the_interval_of_a_difference_is_welchs() -> None:
    from scipy import stats

    one, other = [0.80, 0.82, 0.81, 0.86], [0.70, 0.79, 0.77]
    actual = difference(Spread.of(one), Spread.of(other))
    expected = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    low, high = actual.mean - actual.half_width, actual.mean + actual.half_width
    assert (low, high) == pytest.approx((expected.low, expected.high))
    assert math.isnan(difference(Spread.of([1.0]), Spread.of(other)).half_width)


def test_a_comparison_says_which_cell_is_best() -> None:
    scores = [
        {"cell": cell, "seed": 1 * (start == "pretrained"), "task": "T", "start": start,
         "scores": {"accuracy": mean + noise}}
        for cell, start, mean in (
            ("a", "pretrained", 0.9), ("b", "pretrained", 0.895), ("a", "from scratch", 0.5)
        )
        for noise in (-0.01, 0.0, 0.01)
    ]  # fmt: skip
    cells = [{"cell": name, "heldout_loss": {"mean": n}} for n, name in enumerate("ab", 2)]
    results = {"cells": cells, "scores": scores, "metrics": {"T": "accuracy"}}
    loss, task = comparison_sentences({**results, "is_one_objective": True})
    assert loss.startswith("a has the lowest held-out loss, 2.00 nats per token")
    assert "a is highest, 90.0 % accuracy, before b at 89.5 %" in task
    assert "Pretraining adds 40.0 points" in task
    assert len(comparison_sentences({**results, "is_one_objective": False})) == 1
    equal = [score | {"scores": {"accuracy": 0.9}} for score in scores]
    (said,) = comparison_sentences({**results, "scores": equal, "is_one_objective": False})
    assert said.startswith("T: a and b tie for highest, 90.0 % accuracy. a: Against")


def test_a_comparison_says_which_cell_has_the_lowest_perplexity() -> None:
    scores = [
        {"cell": cell, "seed": 1, "task": "T", "start": "pretrained", "scores": {"perplexity": of}}
        for cell, mean in (("a", 40.0), ("b", 30.0))
        for of in (mean - 0.1, mean, mean + 0.1)
    ]
    cells = [{"cell": name} for name in "ab"]
    results = {"cells": cells, "scores": scores, "metrics": {"T": "perplexity"}}
    (said,) = comparison_sentences({**results, "is_one_objective": False})
    assert said == "T: b is lowest, 30.000 perplexity, before a at 40.000 perplexity."
