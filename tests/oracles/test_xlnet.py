"""Relative positions, memory and the query stream against `transformers` and the formula.

Transformer-XL itself is no longer in `transformers`; its attention is the content stream of XLNet
with one direction.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from foreword.models.transformer import Transformer, TransformerBackbone
from foreword.nn.masks import CausalMask, FullMask, Mask, PermutationMask
from foreword.nn.model import Model
from foreword.nn.positions._contract import AttentionPositions
from foreword.nn.positions.relative import Relative, RelativePositions
from foreword.types import Batch, Queries

from . import weights

transformers = pytest.importorskip("transformers")

VOCAB, LAYERS, D_MODEL, HEADS, LENGTH, BATCH = 61, 2, 32, 4, 15, 3
CLOSE = {"atol": 1e-4, "rtol": 1e-4}


def pair(*, is_causal: bool = False, memory: int = 0, clamp: int = 0) -> tuple[nn.Module, Model]:
    """Theirs and ours with equal weights."""
    theirs = transformers.XLNetLMHeadModel(
        transformers.XLNetConfig(
            vocab_size=VOCAB,
            d_model=D_MODEL,
            n_layer=LAYERS,
            n_head=HEADS,
            d_inner=80,
            attn_type="uni" if is_causal else "bi",
            mem_len=memory or None,
            clamp_len=clamp or -1,
        )
    ).eval()
    weights.randomise(theirs, seed=1)
    settings = Transformer(
        d_model=D_MODEL,
        layers=LAYERS,
        heads=HEADS,
        d_ff=80,
        norm_position="post",
        norm_eps=1e-12,
        attention_bias=False,
        position=Relative(shared=False, segments=True, clamp=clamp),
        assumes_causal_mask=is_causal,
        memory=memory,
        two_streams=True,
    )
    backbone = settings.build(VOCAB)
    head = backbone.build_softmax_head(bias=True)
    ours = Model(backbone, nn.ModuleDict({"token": head})).eval()
    taken = weights.Theirs(theirs)
    weights.load(ours, weights.xlnet(taken, LAYERS, HEADS), taken)
    return theirs, ours


def ids(seed: int, length: int = LENGTH) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCAB, (BATCH, length), generator=random)


def plain(tokens: Tensor, mask: Mask, **more: object) -> Batch:
    position_ids = torch.arange(tokens.shape[1]).expand_as(tokens)
    return Batch(tokens, position_ids, mask, **more)  # type: ignore[arg-type]


def segments() -> Tensor:
    return (torch.arange(LENGTH) >= torch.tensor([[4], [9], [15]])).long()


def assert_same(ours: Tensor, theirs: Tensor) -> None:
    assert theirs.std() > 0.1, "the logits say nothing"
    torch.testing.assert_close(ours, theirs, **CLOSE)


@pytest.mark.parametrize("has_segments", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("clamp", [0, 5])
@torch.no_grad()
def test_the_content_stream_has_the_logits_of_transformers(
    has_segments: bool, is_causal: bool, clamp: int
) -> None:
    theirs, ours = pair(is_causal=is_causal, clamp=clamp)
    kinds = segments() if has_segments else None
    expected = theirs(ids(2), token_type_ids=kinds, use_mems=False).logits
    batch = plain(ids(2), CausalMask() if is_causal else FullMask(), segments=kinds)
    assert_same(ours.token_head(ours.backbone(batch).states), expected)


@pytest.mark.parametrize("memory", [8, 20])
@pytest.mark.parametrize("is_causal", [False, True])
@torch.no_grad()
def test_states_with_memory_equal_those_of_transformers(is_causal: bool, memory: int) -> None:
    theirs, ours = pair(is_causal=is_causal, memory=memory)
    mems, memory = None, None
    for n, length in enumerate([LENGTH, 6, LENGTH]):
        tokens = ids(n, length)
        expected = theirs(tokens, mems=mems, use_mems=True)
        mask = CausalMask() if is_causal else FullMask()
        hidden = ours.backbone(plain(tokens, mask, memory=memory))
        assert_same(ours.token_head(hidden.states), expected.logits)
        mems, memory = expected.mems, hidden.memory
        assert memory is not None
        for one, other in zip(memory, mems, strict=True):
            torch.testing.assert_close(one, other.transpose(0, 1), **CLOSE)


@pytest.mark.parametrize("has_memory", [False, True])
@pytest.mark.parametrize("has_segments", [False, True])
@torch.no_grad()
def test_both_streams_equal_those_of_transformers(has_memory: bool, has_segments: bool) -> None:
    theirs, ours = pair(memory=10)
    mems, memory = None, None
    if has_memory:
        mems = theirs(ids(3), use_mems=True).mems
        memory = ours.backbone(plain(ids(3), FullMask())).memory
    random = torch.Generator().manual_seed(4)
    draws = torch.rand(BATCH, LENGTH, generator=random)
    at = draws.argsort(1)[:, :5]  # (batch, predictions), each row's in its order of prediction
    order = torch.full((BATCH, LENGTH), -1).scatter(1, at, torch.arange(5).expand(BATCH, -1))
    # 1 where i may not see j; theirs lets the content stream see itself.
    hidden = (order[:, None, :] >= order[:, :, None]) & (order[:, None, :] >= 0)
    mapping = nn.functional.one_hot(at, LENGTH).float()
    kinds = segments() if has_segments else None
    expected = theirs(
        ids(5),
        perm_mask=hidden.float(),
        target_mapping=mapping,
        token_type_ids=kinds,
        mems=mems,
        use_mems=True,
    )
    batch = plain(
        ids(5),
        PermutationMask(order),
        segments=kinds,
        memory=memory,
        parts=(Queries(at, PermutationMask(order, includes_self=False)),),
    )
    actual = ours.backbone(batch)
    assert_same(ours.token_head(actual.states), expected.logits)
    assert actual.memory is not None
    for one, other in zip(actual.memory, expected.mems, strict=True):
        torch.testing.assert_close(one, other.transpose(0, 1), **CLOSE)


@pytest.mark.parametrize("shared", [True, False])
@torch.no_grad()
def test_attention_scores_equal_the_four_terms_of_transformer_xl(shared: bool) -> None:
    """Dai et al. 2019, section 3.3, one query and one key at a time, in float64."""
    width, heads, d_head, layers, remembered, queries = 6, 2, 3, 2, 4, 5
    scheme = Relative(shared=shared).build(width, heads, d_head, layers=layers, is_causal=True)
    assert isinstance(scheme, RelativePositions)
    weights.randomise(scheme, seed=6)
    scheme.double()
    keys = remembered + queries
    random = torch.Generator().manual_seed(7)
    q, k = (
        torch.randn(1, heads, n, d_head, generator=random, dtype=torch.float64)
        for n in (queries, keys)
    )
    for layer in range(layers):
        added = scheme.scores(
            q, k, AttentionPositions.consecutive(remembered, queries, q.device), layer
        )
        assert added is not None
        u, v = (
            table.weight[0 if shared else layer].view(heads, d_head)
            for table in (scheme.u, scheme.v)
        )
        w_r = scheme.maps[layer].weight
        for h in range(heads):
            w = w_r[h * d_head : (h + 1) * d_head]
            for i in range(queries):
                for j in range(remembered + i + 1):
                    distance = remembered + i - j
                    angles = [distance / 10_000 ** (2 * n / width) for n in range(width // 2)]
                    waves = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
                    r = w @ torch.tensor(waves, dtype=torch.float64)
                    terms = q[0, h, i] @ r + u[h] @ k[0, h, j] + v[h] @ r
                    assert added[0, h, i, j].item() == pytest.approx(terms.item(), abs=1e-5)


@torch.no_grad()
def test_shared_biases_equal_equal_biases_of_each_layer() -> None:
    """Transformer-XL shares u and v over layers; XLNet with equal ones in each is the same."""
    shared, own = (
        Transformer(
            d_model=D_MODEL,
            layers=LAYERS,
            heads=HEADS,
            assumes_causal_mask=True,
            position=Relative(shared=s),
        ).build(VOCAB)
        for s in (True, False)
    )
    weights.randomise(shared, seed=8)
    for name, parameter in shared.named_parameters():
        is_bias = name.endswith(("u.weight", "v.weight"))
        theirs = own.get_parameter(name)
        theirs.copy_(parameter.expand_as(theirs) if is_bias else parameter)
    batch = plain(ids(9), CausalMask())
    assert isinstance(shared, TransformerBackbone)
    torch.testing.assert_close(shared.eval()(batch).states, own.eval()(batch).states)
