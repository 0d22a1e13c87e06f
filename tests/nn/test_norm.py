"""Norms: their values and their dtypes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from foreword.nn.norm import LayerNorm, RMSNorm


@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_equals_torchs(bias: bool) -> None:
    mine, torchs = LayerNorm(8, 1e-5, bias=bias), nn.LayerNorm(8, 1e-5, bias=bias)
    assert mine.state_dict().keys() == torchs.state_dict().keys()
    with torch.no_grad():
        mine.weight.uniform_()
    torchs.load_state_dict(mine.state_dict())
    x = torch.randn(3, 8)
    assert torch.equal(mine(x), torchs(x))


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_the_residual_stream_keeps_its_dtype(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's autocast computes the norm in float32 for any input dtype."""
    plain = F.layer_norm
    monkeypatch.setattr(F, "layer_norm", lambda x, *others: plain(x.float(), *others))
    norm = LayerNorm(8, 1e-5, bias=True) if kind == "layer" else RMSNorm(8, 1e-5)
    assert norm(torch.randn(3, 8).bfloat16()).dtype == torch.bfloat16
