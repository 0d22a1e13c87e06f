from __future__ import annotations

import pytest
import torch
from scipy import stats

from foreword.nn import cross_entropy
from foreword.nn.drawing import draw


def test_draws_are_distributed_as_the_softmax() -> None:
    random = torch.Generator().manual_seed(1)
    state, weight = torch.randn(1, 4, generator=random), torch.randn(9, 4, generator=random)
    bias = torch.randn(9, generator=random)
    noise = torch.rand(20_000, generator=random)
    found = draw(state.expand(len(noise), -1), weight, bias, noise)
    wanted = (state @ weight.t() + bias).softmax(-1)[0] * len(noise)
    counts = torch.bincount(found, minlength=9)
    assert (
        stats.chisquare(counts, wanted.double() / wanted.double().sum() * len(noise)).pvalue > 0.01
    )


def test_a_draw_depends_on_its_noise_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(2)
    states, weight = torch.randn(50, 8, generator=random), torch.randn(30, 8, generator=random)
    noise = torch.rand(50, generator=random)
    at_once = draw(states, weight, None, noise)
    monkeypatch.setitem(cross_entropy.SLICE, "cpu", 90)  # three rows at a time
    assert torch.equal(draw(states, weight, None, noise), at_once)
    assert torch.equal(draw(states[7:8], weight, None, noise[7:8]), at_once[7:8])


def test_the_ends_of_the_interval_are_tokens_that_can_be_drawn() -> None:
    weight = torch.tensor([[-200.0], [0.0], [0.0], [-200.0]])  # the outer two have no probability
    noise = torch.tensor([0.0, 1 - 2**-24])
    assert draw(torch.ones(2, 1), weight, None, noise).tolist() == [1, 2]


def test_nothing_to_draw() -> None:
    assert draw(torch.ones(0, 3), torch.ones(5, 3), None, torch.ones(0)).tolist() == []
