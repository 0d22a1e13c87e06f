"""The order of prediction: how many, in which spans, and who is seen."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foreword.data.rng import RowRng
from foreword.layouts.two_streams import TwoStreams
from foreword.nn.init import initialise
from foreword.nn.model import Model
from foreword.objectives.permutation import Permutation
from foreword.types import Array, Example, PredictionOrder
from tests.contracts import cases

LENGTH = 96


def corrupt(rows: int = 2000, **settings: float) -> Example:
    given = cases.rows([[40, 56]] * rows)
    rng = RowRng(cases.SEED, given.numbers)
    return Permutation(**settings).corrupt(given, rng, cases.vocab())  # type: ignore[arg-type]


def spans(is_target: Array) -> list[int]:
    """Lengths of the runs."""
    return [len(run) for row in is_target for run in "".join(" x"[int(t)] for t in row).split()]


@pytest.mark.product(few=2)
@pytest.mark.parametrize("max_span", [0, 1, 5])
@pytest.mark.parametrize("rate", [1 / 6, 0.5])
def test_full_rows_have_the_same_number_of_targets(rate: float, max_span: int) -> None:
    is_target = corrupt(rate=rate, max_span=max_span).weights > 0
    assert set(is_target.sum(1)) == {round(rate * LENGTH)}
    # But for the row's ends, where spans do not fit, each position is as likely as any.
    ordinary = is_target[:, 10:36].mean(), is_target[:, 50:86].mean()
    assert ordinary == pytest.approx((rate, rate), rel=0.1)


def test_orders_are_equally_likely_permutations() -> None:
    example = corrupt()
    order = example.require(PredictionOrder).order
    is_target = example.weights > 0
    ordered = np.sort(order, axis=1)[:, -16:]
    assert (ordered == np.arange(16)).all()
    assert (order[~is_target] == -1).all()
    inside = order[is_target].reshape(2000, 16)
    assert inside.mean(0) == pytest.approx(7.5, abs=0.5)
    is_earlier = (inside[:, :-1] < inside[:, 1:]).mean(0)
    assert is_earlier == pytest.approx(0.5, abs=0.05)


def test_span_lengths_follow_their_distribution() -> None:
    frequencies = np.bincount(spans(corrupt().weights > 0), minlength=6)[:6] / 2000
    assert frequencies[2] > frequencies[3] > frequencies[4] > frequencies[5] > 0.3
    assert frequencies[2] / frequencies[4] == pytest.approx(4 / 2, rel=0.25)
    single = np.bincount(spans(corrupt(max_span=1).weights > 0), minlength=3)
    assert single[2:].sum() < 0.2 * single[1]


def test_a_prediction_sees_only_context_and_earlier_targets() -> None:
    """A changed token moves just those predictions that may see it, whatever the depth."""
    case = cases.Case("permutation", "two_streams", "transformer")
    model = case.build("relative")
    given = cases.rows([[30]], seed=4)
    example = Permutation(rate=0.4).corrupt(given, RowRng(1, given.numbers), cases.vocab())
    order = example.require(PredictionOrder).order[0]

    def states(ids: Array) -> torch.Tensor:
        given.ids[:] = ids
        logits = cases.logits(model, TwoStreams().arrange(example, cases.vocab()).to("cpu"))
        return logits[0]

    ids = given.ids.copy()
    before = states(ids)
    of_queries = order[np.flatnonzero(order >= 0)]
    for position in range(29):
        changed = ids.copy()
        changed[0, position] = cases.FIRST + (ids[0, position] - cases.FIRST + 7) % 40
        moved = (states(changed) - before).abs().amax(-1).numpy() > 1e-5
        assert (moved == (of_queries > order[position])).all()


def test_predictions_depend_on_the_order() -> None:
    """Same tokens, same targets, the order turned round: other predictions."""
    case = cases.Case("permutation", "two_streams", "transformer")
    backbone = case.model_settings("relative").build(cases.SIZE)
    model = Model(backbone, Permutation().heads(backbone, cases.vocab()))
    initialise(model, 1)
    given = cases.rows([[30]])
    example = Permutation(rate=0.4).corrupt(given, RowRng(1, given.numbers), cases.vocab())
    order = example.require(PredictionOrder).order
    back = example.with_part(PredictionOrder(np.where(order >= 0, order.max() - order, -1)))
    one, other = (
        cases.logits(model, TwoStreams().arrange(e, cases.vocab()).to("cpu"))
        for e in (example, back)
    )
    assert ((one - other).abs().amax(-1) > 1e-4).all()
