from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from foreword.errors import UserError
from foreword.layouts.decoder import Decoder
from foreword.layouts.encoder import Encoder
from foreword.nn.model import Model
from foreword.objectives.causal import Causal
from foreword.objectives.hybrid import Hybrid
from foreword.objectives.masked import Masked
from foreword.runs.recipe import load_recipe
from foreword.testing.objectives import CASE_CHECKS, OBJECTIVE_CHECKS, corrupt
from foreword.types import Batch, CausalRows, NextToken

from ..contracts.cases import Case, rows, vocab

HALF = Hybrid(causal=0.5)
CASE = Case("hybrid", "hybrid", "transformer", HALF)


def logits(model: Model, batch: Batch) -> torch.Tensor:
    with torch.no_grad():
        scores: torch.Tensor = model.token_head(model.backbone(batch.to("cpu")).states)
    return scores


@pytest.mark.parametrize("check", [*OBJECTIVE_CHECKS, *CASE_CHECKS], ids=lambda c: c.__name__)
def test_half_causal_rows_keep_the_contract(check: Any) -> None:
    check(HALF if check in OBJECTIVE_CHECKS else CASE)


def test_a_share_of_the_rows_is_causal_and_the_others_are_masked() -> None:
    given = rows([[30, 10]] * 2000)
    example = corrupt(Hybrid(causal=0.25), given)
    cloze = corrupt(Masked(), given)
    is_causal = example.require(CausalRows).is_causal
    assert example.source is not None
    assert cloze.source is not None
    assert is_causal.mean() == pytest.approx(0.25, abs=0.03)
    assert np.array_equal(example.source.ids[is_causal], given.ids[is_causal])
    assert example.weights[is_causal].all()
    assert np.array_equal(example.source.ids[~is_causal], cloze.source.ids[~is_causal])
    assert np.array_equal(example.weights[~is_causal], cloze.weights[~is_causal])


def test_only_causal_rows_predict_the_token_after_the_row() -> None:
    given = rows([[20]] * 40)
    given = given.with_part(NextToken(np.arange(40)))
    example = corrupt(Hybrid(causal=0.5), given)
    is_causal = example.require(CausalRows).is_causal
    after = example.require(NextToken).ids
    assert 0 < is_causal.sum() < 40
    assert np.array_equal(after, np.where(is_causal, np.arange(40), -1))
    batch = CASE.batch(given)
    assert np.array_equal(np.asarray(batch.weights)[:, -1] > 0, is_causal)


def test_causal_rows_are_a_decoder() -> None:
    given = rows([[20, 9], [29]])
    batch = CASE.batch(given, causal=1.0)
    example = corrupt(Causal(), given)
    expected = Decoder().arrange(example, vocab())
    assert np.array_equal(batch.targets, expected.targets)
    assert np.array_equal(batch.weights, expected.weights)
    model = CASE.build()
    torch.testing.assert_close(logits(model, batch), logits(model, expected))


def test_masked_rows_are_an_encoder_that_predicts_one_position_before() -> None:
    given = rows([[20, 9], [29]])
    batch = CASE.batch(given, causal=0.0)
    example = corrupt(Masked(), given)
    expected = Encoder().arrange(example, vocab())
    model = CASE.build()
    torch.testing.assert_close(logits(model, batch), logits(model, expected))
    # Shifted by one, but for the first token of each document.
    is_first = given.positions == 0
    weights = np.where(is_first, 0, expected.weights)
    assert np.array_equal(np.asarray(batch.weights)[:, :-1], weights[:, 1:])
    is_scored = weights[:, 1:] > 0
    assert is_scored.any()
    targets = np.asarray(batch.targets)[:, :-1]
    assert np.array_equal(targets[is_scored], expected.targets[:, 1:][is_scored])


def test_the_loss_is_the_sum_over_both_kinds_of_rows() -> None:
    given = rows([[30], [9, 4], [12], [21]])
    model, batch = CASE.build(), CASE.batch(given)
    loss = HALF.loss(model, batch)
    whole = model.token_head.loss(model.backbone(batch), batch)
    torch.testing.assert_close(loss.total, whole.total)
    assert loss.count == whole.count
    is_causal = batch.require(CausalRows).is_causal
    total, count = loss.components["causal"]
    only = replace(batch, weights=batch.weights * is_causal[:, None])
    torch.testing.assert_close(total, model.token_head.loss(model.backbone(batch), only).total)
    assert 0 < count < loss.count


def test_a_text_needs_a_token_before_its_first() -> None:
    with pytest.raises(UserError, match=r"packing\.bos: .* set packing\.bos"):
        load_recipe("gpt_bert_tiny", ["packing.bos="])


@pytest.mark.parametrize("objective", ["masked", "replaced_token", "span_masked", "permutation"])
def test_objectives_that_predict_in_place_do_not_fit_the_layout(objective: str) -> None:
    with pytest.raises(UserError, match=r"layout\.kind: 'hybrid' requires"):
        Case(objective, "hybrid", "transformer").batch(rows([[30]]))
