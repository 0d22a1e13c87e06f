"""Masked diffusion against what can be enumerated: every subset of masked tokens of short texts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import comb

import numpy as np
import pytest
import torch

from foreword.data.rng import RowRng
from foreword.nn.model import Model
from foreword.objectives.diffusion import Diffusion
from foreword.objectives.masked import Masked
from foreword.testing.objectives import corrupt
from foreword.types import Array, Batch, Rows

from ..contracts.cases import FIRST, SEED, SIZE, Case, rows, select_rows, vocab

LENGTH = 4
MASK = vocab().id("[MASK]")


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(3)
    return Case("diffusion", "encoder", "transformer").build().eval()


def log_probs(model: Model, inputs: Array) -> Array:
    """The log-probability of every token at every position, (texts, length, vocab)."""
    zero = np.zeros_like(inputs)
    positions = np.broadcast_to(np.arange(inputs.shape[1]), inputs.shape)
    case = Case("diffusion", "encoder", "transformer")
    batch: Batch = case.batch(Rows(inputs, zero, positions, np.arange(len(inputs))))
    with torch.no_grad():
        states = model.backbone(replace(batch, ids=torch.from_numpy(inputs))).states
        return np.asarray(model.token_head(states).double().log_softmax(-1))


def of_subsets(model: Model, text: Array) -> dict[tuple[bool, ...], Array]:
    """Of each set of masked tokens, the log-probability of the right token at each position."""
    subsets = list(product([False, True], repeat=len(text)))
    inputs = np.where(np.array(subsets), MASK, text)
    scores = log_probs(model, inputs)[:, np.arange(len(text)), text]
    return dict(zip(subsets, scores, strict=True))


def exact(scores: dict[tuple[bool, ...], Array]) -> tuple[float, float]:
    """The negative log-likelihood, over all orders of unmasking, and the bound on it."""
    length = len(next(iter(scores)))
    likelihood, bound = {(False,) * length: 1.0}, {(False,) * length: 0.0}
    for masked in sorted(scores, key=sum):
        where = [n for n in range(length) if masked[n]]
        after = [tuple(m and n != at for n, m in enumerate(masked)) for at in where]
        if where:
            nats = scores[masked][where]
            likelihood[masked] = np.mean(np.exp(nats) * [likelihood[rest] for rest in after])
            bound[masked] = np.mean(-nats + [bound[rest] for rest in after])
    everything = (True,) * length
    return -float(np.log(likelihood[everything])), float(bound[everything])


def texts(number: int) -> Array:
    return np.random.default_rng(1).integers(FIRST, SIZE, (number, LENGTH))


def test_the_bound_is_at_or_above_the_exact_negative_log_likelihood(model: Model) -> None:
    pairs = [exact(of_subsets(model, text)) for text in texts(100)]
    assert all(nll <= bound + 1e-9 for nll, bound in pairs)
    assert max(bound - nll for nll, bound in pairs) > 1e-4  # and not by being the same


def test_what_is_bounded_is_a_distribution_over_texts(model: Model) -> None:
    every = np.arange(SIZE)
    alone = log_probs(model, np.array([[MASK, MASK]]))[0]  # (2, vocab)
    left = log_probs(model, np.stack([every, np.full(SIZE, MASK)], 1))[:, 1]
    right = log_probs(model, np.stack([np.full(SIZE, MASK), every], 1))[:, 0]
    orders = np.exp(alone[0][:, None] + left) + np.exp(alone[1][:, None] + right).T
    assert (orders / 2).sum() == pytest.approx(1.0, abs=1e-6)


def test_the_mean_over_all_masks_is_the_bound(model: Model) -> None:
    """Of a random number of masked tokens, weighted by 1/t, and of a random order."""
    scores = of_subsets(model, texts(1)[0])
    mean = sum(
        -nats[list(masked)].sum() / sum(masked) / comb(LENGTH, sum(masked))
        for masked, nats in scores.items()
        if any(masked)
    )
    assert mean == pytest.approx(exact(scores)[1], rel=1e-9)


def test_draws_converge_to_the_bound(model: Model) -> None:
    text = texts(1)[0]
    scores, n = of_subsets(model, text), 20_000
    ids = np.tile(text, (n, 1))
    given = Rows(ids, np.zeros_like(ids), np.tile(np.arange(LENGTH), (n, 1)), np.arange(n))
    example = corrupt(Diffusion(), given)
    assert np.allclose(example.weights.sum(1), LENGTH)
    masked = example.weights > 0
    assert np.bincount(masked.sum(1))[1:] == pytest.approx(np.full(LENGTH, n / LENGTH), abs=2)
    drawn = np.array([-scores[tuple(row)][row].sum() for row in masked.tolist()])
    drawn *= example.weights.max(1)
    bound = exact(scores)[1]
    for draws in (100, 1_000, n):
        error = abs(drawn[:draws].mean() - bound)
        assert error < 4 * drawn.std() / np.sqrt(draws)


def test_at_the_share_of_a_row_the_loss_is_that_of_masking_up_to_the_weight(model: Model) -> None:
    case = Case("diffusion", "encoder", "transformer")
    given = rows([[41], [30], [12]])
    for row in range(len(given.ids)):
        alone = select_rows(given, [row])
        batch = case.batch(alone)
        share = 1 / float(batch.weights.max())
        masked = Masked(rate=share, mask=1.0, random=0.0)
        same = Case("masked", "encoder", "transformer", masked).batch(alone)
        assert torch.equal(batch.ids, same.ids)
        one, other = (case.loss(model, each) for each in (batch, same))
        assert one.total.item() == pytest.approx(other.total.item() / share, rel=1e-5)


def test_shares_are_spread_evenly_over_rows_of_successive_numbers() -> None:
    for first, n in ((0, 16), (7, 16), (1000, 64)):
        shares = np.sort(RowRng(SEED, np.arange(first, first + n)).evenly())
        gaps = np.diff(np.append(shares, shares[0] + 1))
        assert gaps.max() < 3 / n
    many = RowRng(SEED, np.arange(8))
    assert np.array_equal(many.select(np.array([3])).evenly(), many.evenly()[[3]])


def test_the_end_of_a_text_is_masked_where_it_is_named() -> None:
    given = rows([[5] * 8] * 40)
    end = vocab().id("</s>")
    for named, expected in (("", False), ("</s>", True)):
        example = corrupt(Diffusion(end=named), given)
        assert (example.weights[given.ids == end] > 0).any() == expected
