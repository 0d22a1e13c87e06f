from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from foreword.nn import cross_entropy as module
from foreword.nn.cross_entropy import cross_entropy

PREDICTIONS, D_MODEL, VOCAB = 23, 12, 37


def parts(has_bias: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    states = torch.randn(PREDICTIONS, D_MODEL, generator=random).requires_grad_()
    weight = (0.7 * torch.randn(VOCAB, D_MODEL, generator=random)).requires_grad_()
    bias = torch.randn(VOCAB, generator=random).requires_grad_() if has_bias else None
    targets = torch.randint(0, VOCAB, (PREDICTIONS,), generator=random)
    weights = torch.rand(PREDICTIONS, generator=random) + 0.1
    return states, weight, bias, targets, weights


def plain(
    states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor
) -> Tensor:
    logits = F.linear(states, weight, bias)
    return (F.cross_entropy(logits, targets, reduction="none") * weights).sum()


def gradients(total: Tensor, *leaves: Tensor | None) -> list[Tensor]:
    return list(torch.autograd.grad(3.0 * total, [x for x in leaves if x is not None]))


def assert_equals_torchs(case: tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]) -> None:
    total, expected = cross_entropy(*case), plain(*case)
    torch.testing.assert_close(total, expected, atol=1e-5, rtol=1e-5)
    for actual, grad in zip(
        gradients(total, *case[:3]), gradients(expected, *case[:3]), strict=True
    ):
        torch.testing.assert_close(actual, grad, atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(cross_entropy(*case), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 5, 23, 1000])
@pytest.mark.parametrize("has_bias", [False, True])
def test_cross_entropy_equals_torchs(
    has_bias: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.SLICE, "cpu", rows * VOCAB)
    assert_equals_torchs(parts(has_bias))


@pytest.mark.parametrize("multiple", [8, 37, 64])
@pytest.mark.parametrize("has_bias", [False, True])
def test_aligned_rows_of_logits_give_the_same_result(
    has_bias: bool, multiple: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are aligned on CUDA only; this sets it on the CPU."""
    monkeypatch.setattr(module, "ALIGNED", {"cpu": multiple})
    assert_equals_torchs(parts(has_bias))


@pytest.mark.parametrize("has_bias", [False, True])
def test_bfloat16_is_close_to_float32(has_bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.SLICE, "cpu", 8 * VOCAB)
    case = parts(has_bias)
    expected = plain(*case)
    with torch.autocast("cpu", torch.bfloat16):
        total = cross_entropy(*case)
    assert total.dtype == torch.float32
    torch.testing.assert_close(total, expected, atol=0.0, rtol=5e-3)
    for actual, grad in zip(
        gradients(total, *case[:3]), gradients(expected, *case[:3]), strict=True
    ):
        assert actual.dtype == torch.float32
        assert (actual - grad).norm() < 0.02 * grad.norm()


def test_without_predictions_loss_and_gradients_are_zero() -> None:
    states, weight, bias, targets, weights = parts(has_bias=True)
    total = cross_entropy(states[:0], weight, bias, targets[:0], weights[:0])
    total.backward()
    assert total == 0
    assert states.grad is not None
    assert (states.grad == 0).all()


def test_a_second_backward_is_refused_rather_than_wrong() -> None:
    case = parts(has_bias=False)
    total = cross_entropy(*case)
    (2 * total).backward(retain_graph=True)
    with pytest.raises(RuntimeError):
        total.backward()


def test_far_wrong_predictions_stay_finite() -> None:
    states = torch.tensor([[100.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0]])
    total = cross_entropy(states, weight, None, torch.tensor([1]), torch.ones(1))
    (gradient,) = torch.autograd.grad(total, states)
    assert math.isfinite(total.item())
    assert total > 80
    torch.testing.assert_close(gradient, torch.tensor([[2.0]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab", [1, 7, 100, 1_024, 32_003])
def test_torchs_softmax_may_write_to_its_input(vocab: int, dtype: torch.dtype) -> None:
    """The CPU path relies on this; torch does not document it."""
    logits = torch.randn(9, vocab).to(dtype)
    expected = torch.softmax(logits, -1)
    assert torch.equal(torch.softmax(logits, -1, out=logits), expected)
