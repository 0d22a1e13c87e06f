"""The contract of objectives: a function for each promise of the kinds in `objectives/`.

Checks of an objective take the objective alone; checks of a case take it with a layout and a model
that fit it. Each raises AssertionError if the promise is broken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch

from foreword.data.rng import RowRng
from foreword.objectives._contract import Objective
from foreword.testing.cases import (
    FIRST,
    SEED,
    SIZE,
    Case,
    find_cases,
    is_scored,
    logits,
    rows,
    select_rows,
    vocab,
)
from foreword.train.feed import counted
from foreword.types import (
    Array,
    Batch,
    Example,
    Loss,
    PairLabels,
    PredictionOrder,
    Queries,
    Rows,
    Tokens,
)

MIXED = [[20, 9, 3], [32], [25], [1, 30], [16, 16], [2, 2, 2]]


def check_objective(objective: Objective, *, shows_targets: bool = False) -> None:
    """Check all that an objective promises, with every layout and model that fits it.

    Args:
        objective: the objective, a frozen dataclass.
        shows_targets: whether the source holds the tokens of the target by design (`deshuffle`).

    Raises:
        AssertionError: a promise is broken.
    """
    assert is_dataclass(type(objective)), "an objective is a frozen dataclass"
    for check in OBJECTIVE_CHECKS:
        check(objective)
    cases = find_cases(objective)
    assert cases, "no layout and model fit the objective"
    for case in cases:
        if case.is_count_based:
            continue
        for check_case in CASE_CHECKS:
            if not (shows_targets and check_case is check_no_prediction_sees_its_target):
                check_case(case)


def corrupt(objective: Objective, rows: Rows) -> Example:
    """Return the example of these rows."""
    return objective.corrupt(rows, RowRng(SEED, rows.numbers), vocab())


def sides(example: Example) -> list[Tokens]:
    """Return the source, if there is one, and the target."""
    return [side for side in (example.source, example.target) if side is not None]


def _without_padding(tokens: Tokens, row: int) -> Array:
    """Return ids, documents and positions of one row, (3, length)."""
    inside = tokens.documents[row] >= 0
    return np.stack([tokens.ids, tokens.documents, tokens.positions])[:, row, inside]


def check_same_rows_and_seed_give_the_same_example(objective: Objective) -> None:
    """Check that the example depends on the rows and the seed alone."""
    first, again = corrupt(objective, rows(MIXED)), corrupt(objective, rows(MIXED))
    for one, other in zip(sides(first), sides(again), strict=True):
        assert np.array_equal(one.ids, other.ids), "the same rows give other ids"
    assert np.array_equal(first.weights, again.weights), "the same rows give other weights"


def check_a_row_alone_is_the_row_in_a_group(objective: Objective) -> None:
    """Check that no row depends on the others of its group."""
    many = rows(MIXED)
    together = corrupt(objective, many)
    for row in range(len(many)):
        alone = corrupt(objective, select_rows(many, [row]))
        for one, other in zip(sides(alone), sides(together), strict=True):
            is_same = np.array_equal(_without_padding(one, 0), _without_padding(other, row))
            assert is_same, f"row {row} alone is not the row in a group"
        assert alone.weights.sum() == together.weights[row].sum(), f"weights of row {row}"
        for part, grouped in zip(alone.parts, together.parts, strict=True):
            name = type(part).__name__
            assert type(grouped) is type(part), f"{name} only of some rows"
            for field in fields(part):
                values, group = (np.asarray(getattr(p, field.name)) for p in (part, grouped))
                assert (len(values), len(group)) == (1, len(many)), f"{name} has no row for each"
                expected = group[row, : values.shape[1]] if values.ndim > 1 else group[row]
                assert np.array_equal(values[0], expected), f"{name}.{field.name} of row {row}"


def check_corrupt_does_not_change_the_rows(objective: Objective) -> None:
    """Check that `corrupt` writes into none of its inputs."""
    clean_rows, expected = rows(MIXED), rows(MIXED)
    corrupt(objective, clean_rows)
    for field in ("ids", "documents", "positions", "numbers", "segments"):
        assert np.array_equal(getattr(clean_rows, field), getattr(expected, field)), field
    labels, expected_labels = (of.require(PairLabels).labels for of in (clean_rows, expected))
    assert np.array_equal(labels, expected_labels), "labels"


def check_ids_are_in_range_and_padding_is_not_scored(objective: Objective) -> None:
    """Check types, ranges and shapes, and that something is predicted."""
    example = corrupt(objective, rows(MIXED))
    for side in sides(example):
        assert side.ids.dtype == side.documents.dtype == side.positions.dtype == np.int64
        assert side.ids.min() >= 0
        assert side.ids.max() < SIZE
        assert side.positions.min() >= 0
    assert example.weights.dtype == np.float32
    assert example.weights.shape == example.target.ids.shape
    assert (example.weights[example.target.documents < 0] == 0).all(), "padding is scored"
    pairs = example.part(PairLabels)
    if pairs is not None:
        assert (pairs.labels[example.target.documents < 0] == -1).all(), "padding is labelled"
    if objective.predicts.tokens:
        assert example.weights.sum() > 0, "nothing is predicted"
    else:
        assert pairs is not None
        assert (pairs.labels >= 0).any(), "nothing is predicted"
        assert example.weights.sum() == 0, "there is no head that predicts tokens"


def mask_all(objective: Any) -> dict[str, Any]:
    """Return settings that mask every target, if the objective can show targets."""
    names = {field.name for field in fields(objective)}
    if "terms" in names:
        return {"terms": tuple(replace(t, **mask_all(t)) for t in objective.terms)}
    return {key: value for key, value in (("mask", 1.0), ("random", 0.0)) if key in names}


def _prediction_order(case: Case, rows: Rows, batch: Batch) -> Array:
    """Return the index in the order of each prediction of a query stream, (batch, predictions)."""
    order = corrupt(case.instance, rows).require(PredictionOrder).order
    return np.take_along_axis(order, np.asarray(batch.require(Queries).at), axis=1)


def check_no_prediction_sees_its_target(case: Case) -> None:
    """Check that a prediction stays the same when its target changes."""
    # Each row as often as it has tokens, and then each time with another of them changed.
    clean_rows = rows([[20, 20], [40]])
    of_row, column = np.nonzero(clean_rows.ids >= FIRST)
    clean_rows = select_rows(clean_rows, of_row)
    number = np.arange(len(of_row))
    ids = clean_rows.ids.copy()
    ids[number, column] = FIRST + (ids[number, column] - FIRST + 2) % (SIZE - FIRST)
    model, settings = case.build(), mask_all(case.instance)
    batch = case.batch(clean_rows, **settings)
    changed = case.batch(replace(clean_rows, ids=ids), **settings)
    before, after = logits(model, batch), logits(model, changed)
    # Predictions that must not change: in an encoder the target's; left to right that and all
    # before it; with an order of prediction all that are not later in it.
    is_moved = np.asarray(changed.targets != batch.targets) & is_scored(batch)
    first = is_moved.argmax(1)[:, None]
    if batch.part(Queries) is not None:
        order = _prediction_order(case, clean_rows, batch)
        is_blind = order <= np.take_along_axis(order, first, axis=1)
    elif corrupt(case.instance, clean_rows).is_aligned:
        is_blind = is_moved
    else:
        is_blind = np.arange(is_moved.shape[1]) <= first
    is_blind = is_blind & is_moved.any(1, keepdims=True) & is_scored(batch)
    assert is_moved.any(1).sum() > 1
    torch.testing.assert_close(after[is_blind], before[is_blind], atol=1e-5, rtol=1e-5)


def check_predictions_depend_on_visible_tokens(case: Case) -> None:
    """Check that other rows give other predictions."""
    clean_rows = rows([[24], [24]])
    other = replace(clean_rows, ids=rows([[24], [24]], seed=2).ids)
    model = case.build()
    batch, other_batch = case.batch(clean_rows), case.batch(other)
    difference = (logits(model, batch) - logits(model, other_batch)).abs()[is_scored(batch)]
    assert difference.max() > 0.01


def check_documents_of_a_row_do_not_see_each_other(case: Case) -> None:
    """Check that a document's predictions ignore the other documents of its row."""
    clean_rows = rows([[30, 30], [40, 20], [45, 15]])
    half = FIRST + (SIZE - FIRST) // 2
    in_second = clean_rows.documents == 1
    ordinary = clean_rows.ids >= FIRST
    low = FIRST + (clean_rows.ids - FIRST) % (half - FIRST)
    ids = np.where(ordinary, np.where(in_second, low + half - FIRST, low), clean_rows.ids)
    # Other ids in the second document. Word beginnings stay the same, since they decide which words
    # of the whole row are masked.
    shift = 2 * np.random.default_rng(3).integers(0, (SIZE - half) // 2, ids.shape)
    shifted = half + (ids - half + shift) % (SIZE - half)
    changed = np.where(ordinary & in_second, shifted, ids)
    model, settings = case.build("rotary"), mask_all(case.instance)
    batch = case.batch(replace(clean_rows, ids=ids), **settings)
    changed_batch = case.batch(replace(clean_rows, ids=changed), **settings)
    targets = np.asarray(batch.targets)
    is_first = is_scored(batch) & (targets >= FIRST) & (targets < half)
    assert is_first.any()
    torch.testing.assert_close(
        logits(model, batch)[is_first], logits(model, changed_batch)[is_first], atol=1e-5, rtol=1e-5
    )


def _gradient(case: Case, groups: list[Rows]) -> tuple[float, list[torch.Tensor]]:
    """Return the mean loss over all groups and its gradient; sums and counts are added first."""
    model = case.build()
    batches = counted(case.instance, [case.batch(group) for group in groups])
    losses: list[Loss] = [case.loss(model, batch.to("cpu")) for batch in batches]
    count = sum(loss.count for loss in losses)
    for loss in losses:
        torch.autograd.backward(loss.total / count)
    total = sum(loss.total.item() for loss in losses)
    return total / float(count), [p.grad for p in model.parameters() if p.grad is not None]


def check_micro_batches_give_the_same_gradient(case: Case) -> None:
    """Check that one and four micro-batches give the same mean loss and gradient."""
    clean_rows = rows([[30], [9, 4], [12], [21], [6, 6, 6], [28], [2, 11], [17]])
    at_once, expected = _gradient(case, [clean_rows])
    groups = [select_rows(clean_rows, slice(n, n + 2)) for n in range(0, 8, 2)]
    in_parts, accumulated = _gradient(case, groups)
    assert math.isclose(at_once, in_parts, rel_tol=1e-5)
    assert len(expected) == len(accumulated) > 0
    for one, other in zip(expected, accumulated, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-3)


def check_overfits_one_batch(case: Case) -> None:
    """Check that training on one batch lowers its loss far."""
    torch.manual_seed(0)
    model, batch = case.build(), case.batch(rows([[24]] * 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    # A recurrent model needs half as many steps; all others a tenth of them.
    means = [math.inf]
    while len(means) <= 100 and not means[-1] < 0.3 * means[1 % len(means)]:
        loss = case.loss(model, batch)
        mean = loss.total / loss.count
        optimizer.zero_grad()
        torch.autograd.backward(mean)
        optimizer.step()
        means.append(mean.item())
    assert means[-1] < 0.3 * means[1]


OBJECTIVE_CHECKS: tuple[Callable[[Objective], None], ...] = (
    check_same_rows_and_seed_give_the_same_example,
    check_a_row_alone_is_the_row_in_a_group,
    check_corrupt_does_not_change_the_rows,
    check_ids_are_in_range_and_padding_is_not_scored,
)
CASE_CHECKS: tuple[Callable[[Case], None], ...] = (
    check_no_prediction_sees_its_target,
    check_predictions_depend_on_visible_tokens,
    check_documents_of_a_row_do_not_see_each_other,
    check_micro_batches_give_the_same_gradient,
    check_overfits_one_batch,
)
