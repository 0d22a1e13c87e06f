"""Verdicts from made-up results, against scipy's test, numpy's lines and Holm's own numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from foreword.atlas import rows
from foreword.atlas.record import Findings, Record, Recorded
from foreword.atlas.verdict import (
    FAILS,
    HOLDS,
    MISSING,
    NOT_SHOWN,
    Decision,
    detectable,
    verdict,
)
from foreword.comparison.claim import Claim, ClaimTerm
from foreword.comparison.margins import PRETRAINED, SCRATCH
from foreword.comparison.results import TuningScore
from foreword.evaluation.statistics import holm

A, B, C = [1.0, 1.1, 1.2], [0.5, 0.6, 0.7], [0.9, 1.3, 1.1]
VALUES = {
    "a": A,
    "b": B,
    "c": C,
    "one": [1.0],
    "none": [],
    "count": [2.0, 2.0, 2.0],
    "other count": [1.0, 1.0, 1.0],
    "negative": [-1.0, -1.1, -0.9],
    "n1": [1.0, 1.1],
    "n2": [2.0, 2.1],
    "n4": [4.1, 4.0],
}


def claim(**prediction: Any) -> Claim:
    return Claim("One is better", "a lecture", "score", **prediction)


def decide(**prediction: Any) -> Decision:
    return verdict(claim(**prediction), lambda term: VALUES[term.cell])


@pytest.mark.parametrize(
    ("prediction", "said"),
    [
        ({"higher": ["a"], "lower": ["b"]}, HOLDS),
        ({"higher": ["a"], "lower": ["b"], "by": 0.2}, HOLDS),
        ({"higher": ["b"], "lower": ["a"]}, FAILS),
        ({"higher": ["a"], "lower": ["b"], "by": 0.8}, FAILS),
        ({"higher": ["a"], "lower": ["c"]}, NOT_SHOWN),
        ({"higher": ["a"], "lower": ["b"], "by": 0.5}, NOT_SHOWN),
        ({"higher": ["a"], "lower": ["c"], "by": -1.0}, HOLDS),  # costs little
        ({"higher": ["a"], "lower": ["b"], "by": 1.2, "ratio": True}, HOLDS),
        ({"higher": ["a"], "lower": ["b"], "by": 3.0, "ratio": True}, FAILS),
        ({"higher": ["a"], "lower": ["negative"], "ratio": True}, MISSING),
        ({"higher": ["a", "b"], "lower": ["b", "a"]}, NOT_SHOWN),
        ({"rises": {"n1": 1, "n2": 2, "n4": 4}}, HOLDS),
        ({"falls": {"n1": 1, "n2": 2, "n4": 4}}, FAILS),
        ({"rises": {"n1": 1, "n2": 2, "n4": 4}, "ratio": True, "by": 0.5}, HOLDS),
        ({"rises": {"n1": 1, "n2": 2, "n4": 4}, "ratio": True, "by": 1.5}, FAILS),
        ({"higher": ["count"], "lower": ["other count"]}, HOLDS),  # the same for every seed
        ({"higher": ["other count"], "lower": ["count"]}, FAILS),
        ({"higher": ["a"], "lower": ["one"]}, MISSING),
        ({"higher": ["a"], "lower": ["none"]}, MISSING),
    ],
)
def test_the_interval_decides(prediction: dict[str, Any], said: str) -> None:
    found = decide(**prediction)
    assert found.verdict == said
    if said == NOT_SHOWN:
        assert found.low <= claim(**prediction).least <= found.high
        assert not found.is_decided
        assert found.needs is None or found.needs > found.seeds


def test_p_and_interval_of_a_difference_are_welchs() -> None:
    found, theirs = decide(higher=["a"], lower=["c"]), stats.ttest_ind(A, C, equal_var=False)
    assert found.p == pytest.approx(theirs.pvalue)
    interval = theirs.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_a_trend_is_the_least_squares_line() -> None:
    cells = {"n1": 1, "n2": 2, "n4": 4}
    points = [(x, value) for name, x in cells.items() for value in VALUES[name]]
    x, y = np.array(points).T
    assert decide(rises=cells).number == pytest.approx(np.polyfit(np.log2(x), y, 1)[0])
    assert decide(rises=cells, ratio=True).number == pytest.approx(
        np.polyfit(np.log(x), np.log(y), 1)[0], abs=1e-3
    )


def test_holm_corrects_as_r_does() -> None:
    # R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_a_detectable_distance_is_shown_in_eight_of_ten_experiments() -> None:
    rng, seeds = np.random.default_rng(1), 4
    away = detectable(math.sqrt(2 / seeds), 2 * (seeds - 1))
    shown = 0
    for _ in range(500):
        one, other = rng.normal(away, 1, seeds), rng.normal(0, 1, seeds)
        made = {"a": one.tolist(), "b": other.tolist()}
        found = verdict(claim(higher=["a"], lower=["b"]), lambda term, made=made: made[term.cell])
        shown += found.verdict == HOLDS
    assert shown / 500 == pytest.approx(0.8, abs=0.06)


def test_terms_may_differ_in_measure_and_start() -> None:
    few = ClaimTerm("a", "100 labels", "from scratch")
    made = claim(higher=["a", few], lower=[ClaimTerm("", "100 labels", "bag of words"), "b"])
    assert [str(term) for _, term in made.weighted] == ["a", "a from scratch", "bag of words", "b"]
    assert {term.measure for _, term in made.weighted} == {"score", "100 labels"}


@pytest.mark.parametrize(
    ("prediction", "message"),
    [
        ({}, "higher and lower, or rises"),
        ({"higher": ["a"]}, "as many cells"),
        ({"higher": ["a"], "lower": ["b"], "rises": {"a": 1, "b": 2}}, "or rises"),
        ({"rises": {"a": 1}}, "two or more"),
        ({"falls": {"a": 0, "b": 2}}, "above 0"),
        ({"higher": ["a"], "lower": ["b"], "by": -1.0, "ratio": True}, "factor"),
    ],
)
def test_impossible_predictions_are_refused(prediction: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        claim(**prediction)


@pytest.mark.parametrize("measure", ["bits_per_byte", "tokens", "chats"])
@pytest.mark.parametrize("bounds", [(), ("a",), ("a", "b")])
def test_bounds_are_not_set_against_exact_losses(measure: str, bounds: tuple[str, ...]) -> None:
    tested = Claim("One is better", "a lecture", measure, higher=("a",), lower=("b",))
    runs = tuple(
        {"cell": cell, measure: value, "is_bound": cell in bounds}
        for cell in "ab"
        for value in VALUES[cell]
    )
    record = Record(1.0, None, (), {"c": Recorded(tested, "2026", True)})
    scores = tuple(
        TuningScore(cell, seed, "chats", PRETRAINED, 0, {"perplexity": value})
        for cell in "ab"
        for seed, value in enumerate(VALUES[cell], 1)
    )
    found = Findings(record, runs, scores, {"chats": "perplexity"}, {})
    is_mixed = measure != "tokens" and len(bounds) == 1
    decision = found.verdicts()["c"]
    assert decision.verdict == (MISSING if is_mixed else HOLDS)
    assert decision.bounds == (("a",) if is_mixed else ())
    shown = rows._measured(found, tested, rows._terms(found, tested))
    assert shown.count("at most") == (len(bounds) if measure != "tokens" else 0)
    if is_mixed:
        assert rows._power(tested, decision).startswith("exact losses; of a only upper bounds")


ENDS = {"a": 5.0, "b": 7.02}  # nats, of which token frequencies have 7.05


def found_of(tested: Claim, epochs: float | None = 1.0, **more: Any) -> Findings:
    """Return made-up results of cells a and b, of which b ends at the loss of frequencies."""
    runs = tuple(
        {"cell": cell, "token_loss": ENDS[cell] + seed / 1000, "unigram": 7.05, "epochs": epochs}
        | dict.fromkeys(("heldout_loss", "tokens_per_second"), seed + ENDS[cell])
        | more
        for cell in ENDS
        for seed in range(3)
    )
    scores = tuple(
        TuningScore(cell, seed, measure, start, 0, {metric: ENDS[cell] + seed / 100})
        for cell in ENDS
        for seed in range(1, 4)
        for measure, metric in (("tagging", "accuracy"), ("gradient reach", "reach"))
        for start in (PRETRAINED, SCRATCH)
    )
    record = Record(1.0, None, (), {"c": Recorded(tested, "2026", True)})
    return Findings(record, runs, scores, {"tagging": "accuracy", "gradient reach": "reach"}, {})


def less(measure: str, *, start: str = PRETRAINED) -> Claim:
    """Return the claim that b has more of a measure than a by far, less than which is nothing."""
    higher = (ClaimTerm("b", start=start),)
    return Claim("One is better", "a lecture", measure, higher=higher, lower=("a",), by=-30.0)


@pytest.mark.parametrize(
    ("measure", "more", "is_judged"),
    [
        ("heldout_loss", {}, True),
        ("tagging", {}, True),
        ("heldout_loss", {"token_loss": 6.85}, True),
        ("heldout_loss", {"token_loss": 6.83}, False),  # 3 % below
        ("heldout_loss", {"token_loss": 9.0}, True),
        ("heldout_loss", {"epochs": None}, True),
        ("heldout_loss", {"epochs": 4.0}, True),
        ("heldout_loss", {"epochs": 20.0, "token_loss": 9.0}, False),  # spoiled
        ("heldout_loss", {"unigram": None}, False),  # ELECTRA, n-grams
        ("heldout_loss", {"token_loss": None}, False),  # not a number
        ("tokens_per_second", {}, False),
        ("gradient reach", {}, False),
    ],
)
def test_a_cell_at_the_loss_of_frequencies_shows_nothing_of_quality(
    measure: str, more: dict[str, Any], is_judged: bool
) -> None:
    decision = found_of(less(measure), **more).verdicts()["c"]
    assert decision.verdict == (NOT_SHOWN if is_judged else HOLDS)
    assert bool(decision.not_begun) == is_judged
    assert decision.low > -30.0  # whatever the interval says


def test_the_table_says_which_cell_has_not_begun_and_by_what() -> None:
    tested = less("tagging")
    decision = found_of(tested).verdicts()["c"]
    assert rows._power(tested, decision) == (
        "b has not begun (7.02 nats, token frequencies 7.05): a larger budget"
    )
    # Random weights have not begun by design; of a cell that is missing nothing is known.
    assert found_of(less("tagging", start=SCRATCH)).verdicts()["c"].verdict == HOLDS
    missing = replace(tested, lower=("another",))
    assert found_of(missing).verdicts()["c"] == Decision(MISSING, missing=("another",))


def test_results_from_before_frequencies_were_kept_are_decided_by_their_interval() -> None:
    found = found_of(less("heldout_loss"))
    old = tuple({"cell": run["cell"], "heldout_loss": run["heldout_loss"]} for run in found.runs)
    assert replace(found, runs=old).verdicts()["c"].verdict == HOLDS
