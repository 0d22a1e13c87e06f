"""ALiBi's slopes against BLOOM's code, and Shaw's scores against the formula."""

from __future__ import annotations

import pytest
import torch

from foreword.nn.positions._contract import AttentionPositions
from foreword.nn.positions.alibi import ALiBi
from foreword.nn.positions.shaw import Shaw, ShawPositions


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 20])
def test_alibi_equals_blooms(heads: int) -> None:
    """BLOOM counts from the start of the row: equal for the last query up to a constant."""
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    theirs = bloom.build_alibi_tensor(torch.ones(1, 9), heads, torch.float32)  # (heads, 1, keys)
    positions = torch.arange(9)
    bias = ALiBi().build(8, heads, 4, layers=2, is_causal=True).bias(positions, positions)
    assert bias is not None
    torch.testing.assert_close(bias[:, 8:], theirs - theirs[:, :, 8:])


def test_alibi_is_symmetric() -> None:
    bias = ALiBi().build(8, 4, 4, layers=2, is_causal=False).bias(torch.arange(5), torch.arange(5))
    assert bias is not None
    assert torch.equal(bias, bias.transpose(1, 2))
    assert bias[0, 0].tolist() == [0.0, -0.25, -0.5, -0.75, -1.0]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("start", [0, 3])
@torch.no_grad()
def test_shaw_scores_equal_the_formula(start: int, is_causal: bool) -> None:
    """Shaw et al. 2018, equation 4, without its first term: q_i a_clip(j - i)."""
    heads, d_head, queries, reach = 2, 3, 7, 4
    scheme = Shaw(reach).build(6, heads, d_head, layers=2, is_causal=is_causal)
    assert isinstance(scheme, ShawPositions)
    random = torch.Generator().manual_seed(1)
    q = torch.randn(2, heads, queries, d_head, generator=random)
    positions = AttentionPositions.consecutive(start, queries, q.device)
    for layer in (0, 1):
        added = scheme.scores(q, q, positions, layer)
        assert added is not None
        vectors = scheme.table.weight.view(2, -1, d_head)[layer]
        for i in range(queries):
            for j in range(start + i + 1 if is_causal else start + queries):
                distance = max(-reach, min(reach, j - (start + i)))
                expected = q[:, :, i] @ vectors[distance + reach]
                torch.testing.assert_close(added[:, :, i, j], expected)
