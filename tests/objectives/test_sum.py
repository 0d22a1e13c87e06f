"""BERT's and ALBERT's two objectives: what is swapped, what is added up, and that it trains."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.evaluation.loaded import load
from foreword.objectives.causal import Causal
from foreword.objectives.masked import Masked
from foreword.objectives.next_sentence import NextSentence
from foreword.objectives.sentence_order import SentenceOrder
from foreword.objectives.span_corruption import SpanCorruption
from foreword.objectives.sum import Sum
from foreword.runs.corpus import corpus
from foreword.runs.run_folder import Run
from foreword.runs.setup import TrainingSetup, set_up_training
from foreword.train.feed import Feed
from foreword.train.step import evaluate
from foreword.types import Batch, PairLabels, TermCounts
from tests.contracts.cases import Case, rows, vocab
from tests.train import runs


def table(second: str = "next_sentence") -> dict[str, Any]:
    """A tiny recipe of pairs, without dropout."""
    made = runs.table("encoder", batch=8, micro_batch=8, threads=1)
    made["model"] |= {"dropout": 0.0, "attention_dropout": 0.0, "segments": 2, "init_std": 0.2}
    made["objective"] = {"kind": "sum", "terms": [{"kind": "masked", "rate": 0.3}, second]}
    share = 0.5 if second == "next_sentence" else 0.0
    made["packing"] = {"kind": "pairs", "length": 40, "random": share, "short": 0.9}
    made["read"] = {"documents": "file"}
    made["prepare"] = {"heldout": 0.4}
    return made


def write_text(folder: Path) -> Path:
    """Files of sentences that `text.sentences` tells apart."""
    draw = random.Random(1)
    folder.mkdir()
    for n in range(12):
        texts = [" ".join(draw.choices(runs.WORDS, k=draw.randint(2, 9))) for _ in range(60)]
        text = " ".join(f"{text.capitalize()}." for text in texts)
        (folder / f"{n}.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module", params=["next_sentence", "sentence_order"])
def ready(request: Any, tmp_path_factory: Any) -> TrainingSetup:
    folder = tmp_path_factory.mktemp(request.param)
    made = runs.build(table(request.param))
    run = runs.begin(made, write_text(folder / "text"), folder / "run")
    return set_up_training(made, *corpus(Run(run), runs.stage))


def split(setup: TrainingSetup, micro_batch: int) -> list[Batch]:
    return replace(setup.feed, micro_batch=micro_batch).micro_batches(0)


def test_any_split_of_a_step_is_the_sum_of_the_means(ready: TrainingSetup) -> None:
    (whole,) = split(ready, 8)
    at_once = runs.gradient(ready, [whole])
    loss = ready.recipe.objective.loss(ready.model, whole.without(TermCounts).to("cpu"))
    masked, pairs = (t / n for t, n in list(loss.components.values())[:2])
    expected = torch.autograd.grad(masked + pairs, list(ready.model.parameters()))
    torch.testing.assert_close(at_once, torch.cat([g.flatten() for g in expected]))
    for micro in (1, 2, 3, 4):
        batches = split(ready, micro)
        if micro == 1:  # rows differ, so a mean of means would be wrong
            assert len({int((b.require(PairLabels).labels >= 0).sum()) for b in batches}) > 1
        torch.testing.assert_close(runs.gradient(ready, batches), at_once, rtol=1e-4, atol=1e-6)
    alone = [batch.without(TermCounts) for batch in split(ready, 1)]  # each with its own counts
    assert (runs.gradient(ready, alone) - at_once).norm() > 0.01 * at_once.norm()


def test_the_held_out_loss_is_the_sum_of_the_means(ready: TrainingSetup) -> None:
    assert ready.heldout is not None

    def measure(feed: Feed) -> Any:
        loss_fn = partial(ready.recipe.objective.loss, ready.model)
        return evaluate(ready.model, feed.heldout(20), loss_fn, torch.float32)

    whole, apart = (measure(replace(ready.heldout, micro_batch=n)) for n in (20, 3))
    assert apart.loss == pytest.approx(whole.loss, rel=1e-5)
    assert apart.components == pytest.approx(whole.components, rel=1e-5)
    means = list(whole.components.values())
    assert whole.loss == pytest.approx(means[0] + means[1], rel=1e-5)
    assert 0 <= means[2] <= 1


@pytest.mark.parametrize("weights", [(), (2.0, 0.5)])
def test_weights_multiply_the_means(weights: tuple[float, ...]) -> None:
    case = Case("sum", "encoder", "transformer")
    model, batch = case.build(), case.batch(rows([[20, 9], [30], [8, 8]]), weights=weights)
    loss = Sum(weights=weights).loss(model, batch)
    one = Masked().loss(model, batch)
    two = NextSentence().loss(model, batch)
    a, b = weights or (1.0, 1.0)
    mean = a * one.total / one.count + b * two.total / two.count
    torch.testing.assert_close(loss.total / loss.count, mean)
    assert list(loss.components) == ["masked", "next_sentence", "next_sentence_accuracy"]
    assert Sum().count_terms(batch).tolist() == [one.count.item(), two.count.item()]


@pytest.mark.parametrize("terms", [(Masked(), NextSentence()), (NextSentence(), Masked())])
def test_a_term_without_predictions_in_a_step_leaves_the_other_as_it_is(terms: Any) -> None:
    case = Case("sum", "encoder", "transformer")
    model, batch = case.build(), case.batch(rows([[20, 9], [30], [8, 8]]))
    unmasked = replace(batch, weights=torch.zeros_like(batch.weights))
    objective = Sum(terms)
    counts = torch.from_numpy(objective.count_terms(unmasked))
    alone = NextSentence().loss(model, unmasked)
    for step in (unmasked, unmasked.with_part(TermCounts(counts))):
        loss = objective.loss(model, step)
        torch.testing.assert_close(loss.total, alone.total)
        assert loss.count == alone.count > 0


def test_a_swap_keeps_every_token_and_masks_the_swapped_text() -> None:
    given = rows([[20, 12], [9, 9, 9], [32]])
    swapped = SentenceOrder().relabel(given, RowRng(1, given.numbers))
    assert given.segments is not None
    assert swapped.segments is not None
    given_labels, labels = (of.require(PairLabels).labels for of in (given, swapped))
    seen = set()
    for row, column in zip(*np.nonzero(given_labels == 0), strict=True):
        where = given.documents[row] == given.documents[row, column]
        one, two = (given.ids[row, where & (given.segments[row] == n)].tolist() for n in (0, 1))
        label = labels[row, column]
        seen.add(label)
        expected = [one[0], *two, *one[1:]] if label else one + two
        assert swapped.ids[row, where].tolist() == expected
        assert swapped.segments[row, where].tolist() == sorted(swapped.segments[row, where])
        assert swapped.segments[row, where].sum() == (len(one) - 1 if label else len(two))
    assert seen == {0, 1}
    assert (labels[given_labels != 0] == -1).all()
    both = Sum((Masked(), SentenceOrder())).corrupt(given, RowRng(1, given.numbers), vocab())
    assert np.array_equal(both.target.ids, swapped.ids)
    assert np.array_equal(both.require(PairLabels).labels, labels)
    assert both.weights.sum() > 0


def test_half_of_the_pairs_are_swapped() -> None:
    many = rows([[8, 8, 8, 8]] * 300)
    labels = SentenceOrder().relabel(many, RowRng(1, many.numbers)).require(PairLabels).labels
    assert (labels[labels >= 0] == 1).mean() == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("objective", [Sum(), NextSentence(), SentenceOrder()])
def test_rows_without_pairs_are_refused(objective: Any) -> None:
    given = replace(rows([[20]]), parts=(), segments=None)
    with pytest.raises(UserError, match=r"use packing\.kind = 'pairs'"):
        objective.corrupt(given, RowRng(1, given.numbers), vocab())


def test_terms_that_do_not_predict_in_place_are_refused() -> None:
    given = rows([[20]])
    with pytest.raises(UserError, match="'span_corruption' does not predict in place"):
        Sum((SpanCorruption(), NextSentence())).corrupt(given, RowRng(1, given.numbers), vocab())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"terms": ()}, "terms: must name at least one"),
        ({"terms": (Sum(), NextSentence())}, "'sum' cannot be a term"),
        (
            {"terms": (Masked(), Causal())},
            "at most one that classifies pairs and one that predicts",
        ),
        ({"terms": (NextSentence(), SentenceOrder())}, "at most one that classifies pairs"),
        ({"weights": (1.0,)}, "weights: must be 2"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sum(**settings)


@pytest.mark.product(few=1)
@pytest.mark.parametrize("second", ["next_sentence", "sentence_order"])
def test_a_run_reports_both_terms_and_fills_in_masks(second: str, tmp_path: Path) -> None:
    made = table(second)
    made["train"]["steps"] = 4
    run = runs.begin(runs.build(made), write_text(tmp_path / "text"), tmp_path / "run")
    assert runs.train_run(run)
    keys = {"masked", second, f"{second}_accuracy"}
    for kind in ("train", "heldout"):
        assert keys <= set(runs.logged(run, kind)[-1])
    assert len(load(run).fill("the [MASK] sat.").blanks) == 1
