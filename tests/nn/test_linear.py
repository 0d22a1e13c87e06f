"""Packed weights against plain products."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from foreword.nn import linear
from foreword.nn.linear import Linear, packed_weights


@pytest.fixture
def packs_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of any size are packed."""
    monkeypatch.setattr(linear, "SMALLEST", {})


@pytest.mark.usefixtures("packs_small")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 24), (3, 2, 24), (40, 24)])
def test_packed_weights_give_the_same_products(shape: tuple[int, ...], bias: bool) -> None:
    layer = Linear(24, 33, bias=bias)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    expected = layer(x)
    with packed_weights(layer), torch.inference_mode():
        assert layer.packed is not None
        torch.testing.assert_close(layer(x), expected.detach(), atol=1e-5, rtol=1e-5)
        with packed_weights(layer):  # within another, as samples within an evaluation
            pass
        assert layer.packed is not None
    assert layer.packed is None and "packed" not in layer.state_dict()


@pytest.mark.parametrize(("instructions", "packs"), [("AVX2", False), ("AVX512", True)])
def test_small_weights_are_packed_where_that_is_faster(
    instructions: str, packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
    small, large = Linear(256, 256), Linear(256, 1024)
    with packed_weights(nn.ModuleList([small, large])):
        assert (small.packed is not None) == packs and large.packed is not None


@pytest.mark.usefixtures("packs_small")
def test_packed_weights_are_not_used_in_another_precision() -> None:
    layer = Linear(24, 33)
    x = torch.randn(3, 24)
    with packed_weights(layer), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16


def test_weights_that_cannot_be_packed_are_used_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linear, "_can_pack", lambda module: False)
    layer = Linear(24, 33)
    with packed_weights(layer), torch.inference_mode():
        assert layer.packed is None and layer(torch.ones(1, 24)).shape == (1, 33)
