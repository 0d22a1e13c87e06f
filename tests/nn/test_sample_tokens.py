from __future__ import annotations

import pytest
import torch
from scipy import stats

from foreword.nn import cross_entropy
from foreword.nn.sample_tokens import sample_tokens


def test_samples_follow_the_softmax() -> None:
    random = torch.Generator().manual_seed(1)
    state, weight = torch.randn(1, 4, generator=random), torch.randn(9, 4, generator=random)
    bias = torch.randn(9, generator=random)
    uniform_draws = torch.rand(20_000, generator=random)
    actual = sample_tokens(state.expand(len(uniform_draws), -1), weight, bias, uniform_draws)
    expected = (state @ weight.t() + bias).softmax(-1)[0] * len(uniform_draws)
    counts = torch.bincount(actual, minlength=9)
    assert (
        stats.chisquare(
            counts, expected.double() / expected.double().sum() * len(uniform_draws)
        ).pvalue
        > 0.01
    )


def test_a_sample_depends_on_its_own_uniform_draw_only(monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(2)
    states, weight = torch.randn(50, 8, generator=random), torch.randn(30, 8, generator=random)
    uniform_draws = torch.rand(50, generator=random)
    at_once = sample_tokens(states, weight, None, uniform_draws)
    monkeypatch.setitem(cross_entropy.SLICE, "cpu", 90)  # three rows at a time
    assert torch.equal(sample_tokens(states, weight, None, uniform_draws), at_once)
    assert torch.equal(sample_tokens(states[7:8], weight, None, uniform_draws[7:8]), at_once[7:8])


def test_tokens_of_zero_probability_are_never_sampled() -> None:
    weight = torch.tensor([[-200.0], [0.0], [0.0], [-200.0]])  # the outer two have no probability
    uniform_draws = torch.tensor([0.0, 1 - 2**-24])
    assert sample_tokens(torch.ones(2, 1), weight, None, uniform_draws).tolist() == [1, 2]


def test_no_rows_give_no_samples() -> None:
    assert sample_tokens(torch.ones(0, 3), torch.ones(5, 3), None, torch.ones(0)).tolist() == []
