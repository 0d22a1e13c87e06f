"""The language model of both directions: who predicts what, and how the two add up."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from foreword.nn.init import initialise
from foreword.nn.lm_heads._contract import LMHeadKind
from foreword.nn.lm_heads.adaptive import Adaptive
from foreword.nn.lm_heads.softmax import Softmax
from foreword.nn.model import Model
from foreword.objectives.bidirectional import Bidirectional
from foreword.types import Backward, Batch
from tests.contracts.cases import FIRST, SIZE, Case, rows, vocab

CASE = Case("bidirectional", "bidirectional", "elmo")


@torch.no_grad()
def scores(model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the logits of the token after each position and of the one before it."""
    ahead, back = model.backbone(batch).states.chunk(2, -1)
    return model.token_head(ahead), model.token_head(back)


def test_no_prediction_sees_its_target() -> None:
    """A direction sees what it has read of the document, and nothing else."""
    given = rows([[10, 14], [24]])
    model, batch = CASE.build(), CASE.batch(given)
    before = scores(model, batch)
    for row, column in np.ndindex(given.ids.shape):
        ids = given.ids.copy()
        ids[row, column] = FIRST + (ids[row, column] - FIRST + 2) % (SIZE - FIRST)
        after = scores(model, CASE.batch(replace(given, ids=ids)))
        inside = given.documents == given.documents[row, column]
        inside[np.arange(len(ids)) != row] = False
        position = np.arange(ids.shape[1])
        for one, other, seen in zip(
            before, after, (position >= column, position <= column), strict=True
        ):
            assert np.array_equal((one != other).any(-1).numpy(), inside & seen)


def test_every_token_is_predicted_from_both_sides() -> None:
    given = rows([[10, 14], [20]])
    batch = CASE.batch(given)
    backward = batch.require(Backward)
    is_first = given.positions == 0
    is_text = given.documents >= 0
    is_last = np.roll(is_first | ~is_text, -1, axis=1)
    is_last[:, -1] = True
    assert np.array_equal(np.asarray(batch.weights) > 0, is_text & ~is_last)
    assert np.array_equal(np.asarray(backward.weights) > 0, is_text & ~is_first)
    assert np.array_equal(
        np.asarray(batch.targets)[is_text & ~is_last], given.ids[~is_first & is_text]
    )
    before = np.asarray(backward.targets)[is_text & ~is_first]
    assert np.array_equal(before, given.ids[is_text & ~is_last])


@pytest.mark.parametrize("lm_head", [Softmax(), Adaptive(cutoffs=(110, 130), factor=2.0)])
def test_the_loss_is_the_sum_of_both_directions(lm_head: LMHeadKind) -> None:
    backbone = replace(CASE.model_settings(), lm_head=lm_head).build(SIZE)
    model = Model(backbone, Bidirectional().heads(backbone, vocab()))
    initialise(model, 1)
    batch = CASE.batch(rows([[10, 14], [20]]))
    loss = CASE.loss(model, batch)
    backward = batch.require(Backward)
    asked = [(batch.targets, batch.weights), (backward.targets, backward.weights)]
    expected = [
        -(logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0] * weights).sum()
        for logits, (targets, weights) in zip(scores(model, batch), asked, strict=True)
    ]
    torch.testing.assert_close(loss.total, sum(expected))
    for name, total, (_, weights) in zip(("forward", "backward"), expected, asked, strict=True):
        torch.testing.assert_close(loss.components[name][0], total)
        assert loss.components[name][1] == weights.sum()
    assert loss.count == sum(weights.sum() for _, weights in asked)


def test_a_batch_may_ask_for_one_direction() -> None:
    model, batch = CASE.build(), CASE.batch(rows([[10, 14]]))
    both = CASE.loss(model, batch)
    one = CASE.loss(model, batch.without(Backward))
    torch.testing.assert_close(one.total, both.components["forward"][0])
    assert not one.components


def test_each_direction_learns_on_its_own_side() -> None:
    """A text that counts up is foretold from either side, but for its beginnings."""
    torch.manual_seed(1)
    model = CASE.build()
    texts = rows([[12]] * 6)
    up = FIRST + (np.arange(12) + 3 * np.arange(6)[:, None]) % (SIZE - FIRST)
    batch = CASE.batch(replace(texts, ids=up))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        loss = CASE.loss(model, batch)
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        optimizer.step()
    for name in ("forward", "backward"):
        total, count = loss.components[name]
        assert float(total.detach() / count) < 0.2 * math.log(SIZE)
