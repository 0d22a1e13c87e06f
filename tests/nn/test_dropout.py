"""Dropout: the right share, the right scale, repeatable, and only in training."""

from __future__ import annotations

import pytest
import torch

from foreword.nn.dropout import Dropout, dropout


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(100_003,), (64, 7, 211)])
def test_dropout_zeroes_its_rate_and_scales_the_rest(rate: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    out = dropout(torch.ones(shape), rate)
    dropped = (out == 0).double().mean().item()
    assert dropped == pytest.approx(rate, abs=5 * (rate * (1 - rate) / out.numel()) ** 0.5)
    assert out[out != 0].unique().tolist() == pytest.approx([1 / (1 - rate)])


def test_neighbours_are_dropped_independently() -> None:
    torch.manual_seed(0)
    kept = (dropout(torch.ones(400_000), 0.5) != 0).double() - 0.5
    for distance in (1, 2, 3, 4, 8):
        assert abs((kept[:-distance] * kept[distance:]).mean().item()) < 0.25 * 5 / 400_000**0.5


def test_a_seed_repeats_and_gradients_follow_the_mask() -> None:
    x = torch.ones(1000, dtype=torch.bfloat16, requires_grad=True)
    torch.manual_seed(3)
    first = dropout(x, 0.3)
    torch.manual_seed(3)
    assert (dropout(x, 0.3) == first).all()
    first.sum().backward()
    assert x.grad is not None
    assert (x.grad == first).all()


def test_dropout_is_off_in_evaluation() -> None:
    x = torch.randn(100)
    module = Dropout(0.5)
    assert not torch.equal(module(x), x)
    assert torch.equal(module.eval()(x), x)
    assert torch.equal(dropout(x, 0.0), x)
