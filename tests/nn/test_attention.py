from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import flex_attention

from foreword.nn import attention
from foreword.nn.attention import Attention, AttentionInputs, attend, prepare_mask
from foreword.nn.attentions.dense import DenseAttention
from foreword.nn.masks import (
    BlockSparseMask,
    CausalMask,
    DocumentMask,
    FullMask,
    GlobalMask,
    Mask,
    MemoryMask,
    PermutationMask,
    PrefixMask,
    RaggedCausalMask,
    WindowMask,
)
from foreword.nn.positions._contract import AttentionPositions
from foreword.testing import plain_attention

BATCH, HEADS, LENGTH, D_HEAD = 2, 2, 9, 4
DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2], [0, 0, 0, 0, 0, 1, 1, -1, -1]])
SAME = DocumentMask(DOCUMENTS, DOCUMENTS)
ORDER = torch.tensor([[-1, 2, 0, -1, 1, 3, -1, 5, 4], [0, 1, 2, 3, 4, 5, 6, 7, 8]])
PREFIX = PrefixMask(torch.tensor([[1, 1, 0, 1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0, 0, 0, 0]]).bool())

MASKS: dict[str, Mask] = {
    "full": FullMask(),
    "causal": CausalMask(),
    "same document": SAME,
    "window": WindowMask(2),
    "one position": WindowMask(0),
    "causal and same document": CausalMask() & SAME,
    "causal or prefix": CausalMask() | PREFIX,
    "prefix decoder": (CausalMask() | PREFIX) & SAME,
    "encoder of prefixes": PREFIX | WindowMask(0),
    "window and document": WindowMask(3) & SAME & FullMask(),
    "causal window": FullMask() & CausalMask() & WindowMask(2),
    "window and global": (WindowMask(1) | GlobalMask(2)) & SAME,
    "blocks": BlockSparseMask(torch.tensor([[[1, 0, 1], [1, 1, 0], [0, 0, 1]]]).bool(), 3) & SAME,
    "ordered": PermutationMask(ORDER) & SAME,
    "ordered, before itself": PermutationMask(ORDER, includes_self=False),
    "memory": MemoryMask(CausalMask(), 3),
    "ragged": RaggedCausalMask(torch.tensor([0, 3])),
}


def inputs(queries: int = LENGTH, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    shapes = [(BATCH, HEADS, length, D_HEAD) for length in (queries, LENGTH, LENGTH)]
    q, k, v = (torch.randn(shape, generator=random).to(device) for shape in shapes)
    return q, k, v


def bias(queries: int = LENGTH) -> Tensor:
    return torch.randn(HEADS, queries, LENGTH, generator=torch.Generator().manual_seed(2))


def test_every_mask_is_covered() -> None:
    used: set[type] = set()

    def note(mask: Mask) -> None:
        used.add(type(mask))
        for part in vars(mask).values():
            if isinstance(part, Mask):
                note(part)

    for mask in MASKS.values():
        note(mask)
    assert used == set(Mask.__subclasses__())


@pytest.mark.product
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_dense_attention_equals_the_slow_reference(name: str, has_bias: bool) -> None:
    q, k, v = inputs()
    added = bias() if has_bias else None
    prepared_mask = prepare_mask(MASKS[name], added, (BATCH, LENGTH, LENGTH), q, flex=False)
    actual = attend(q, k, v, prepared_mask, D_HEAD**-0.5, 0.0)
    expected = plain_attention.attention(q, k, v, MASKS[name], added)
    torch.testing.assert_close(actual.double(), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("engine", ["explicit", "sdpa"])
def test_multi_head_attention_equals_the_plain_one(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "SHORT", 512 if engine == "explicit" else 0)
    module = Attention(10, HEADS, D_HEAD, bias=True, is_scaled=True, dropout=0.0)
    x, context = torch.randn(2, BATCH, LENGTH, 10, generator=torch.Generator().manual_seed(1))
    mask = CausalMask() & SAME
    for source in (x, context):
        prepared = prepare_mask(mask, None, (BATCH, LENGTH, LENGTH), x[..., :D_HEAD], flex=False)
        positions = AttentionPositions.consecutive(0, LENGTH, x.device)
        given = AttentionInputs(prepared, DenseAttention(), None, positions, 0)
        actual = module(x, module.keys_values(source), given)
        plain = plain_attention.multi_head_attention(x, source, module, mask)
        torch.testing.assert_close(actual.double(), plain, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", MASKS)
def test_masks_that_declare_it_let_every_query_see_itself(name: str) -> None:
    mask = MASKS[name]
    diagonal = mask.dense(BATCH, LENGTH, LENGTH, torch.device("cpu")).diagonal(dim1=2, dim2=3)
    assert diagonal.all() or not mask.sees_itself
    assert mask.sees_itself == (name in SEEN)


SEEN = (
    "full",
    "causal",
    "same document",
    "window",
    "one position",
    "causal and same document",
    "causal or prefix",
    "prefix decoder",
    "encoder of prefixes",
    "window and document",
    "causal window",
    "window and global",
    "ordered",
)


def test_flex_attention_in_a_compiled_block_is_not_compiled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert attention._flex() is flex_attention.flex_attention


def test_a_mask_may_differ_between_heads() -> None:
    random = torch.Generator().manual_seed(4)
    mask = SAME & BlockSparseMask(torch.rand(HEADS, 5, 5, generator=random) < 0.5, 2)
    q, k, v = inputs()
    prepared_mask = prepare_mask(mask, None, (BATCH, LENGTH, LENGTH), q, flex=False, heads=HEADS)
    actual = attend(q, k, v, prepared_mask, D_HEAD**-0.5, 0.0)
    expected = plain_attention.attention(q, k, v, mask, None)
    torch.testing.assert_close(actual.double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize(
    "kind", ["causal", "window", "causal window", "window and global", "causal before the end"]
)
def test_queries_after_a_cache_are_masked_at_their_positions(kind: str, queries: int) -> None:
    offset = LENGTH - queries
    mask = {
        "causal": CausalMask(offset),
        "window": WindowMask(2, offset),
        "causal window": CausalMask(offset) & WindowMask(2, offset),
        "window and global": WindowMask(2, offset) | GlobalMask(3, offset),
        "causal before the end": CausalMask(3),
    }[kind]
    q, k, v = inputs(queries)
    prepared_mask = prepare_mask(mask, None, (BATCH, queries, LENGTH), q, flex=False)
    actual = attend(q, k, v, prepared_mask, D_HEAD**-0.5, 0.0)
    expected = plain_attention.attention(q, k, v, mask, None)
    torch.testing.assert_close(actual.double(), expected, atol=1e-5, rtol=1e-5)


def test_combined_masks_are_logical_and_and_or() -> None:
    for name in ("causal", "window", "same document"):
        mask = MASKS[name]
        size = (BATCH, LENGTH, LENGTH, torch.device("cpu"))
        dense, other = mask.dense(*size), PREFIX.dense(*size)
        assert ((mask & PREFIX).dense(*size) == (dense & other)).all()
        assert ((mask | PREFIX).dense(*size) == (dense | other)).all()
        assert ((mask & FullMask()).dense(*size) == dense).all()
        assert ((FullMask() & mask).dense(*size) == dense).all()
        assert (mask | FullMask()).dense(*size).all()
        assert (FullMask() | mask).dense(*size).all()


def spans_by_hand(
    q: Tensor, k: Tensor, v: Tensor, edges: Tensor, *others: Any, scale: float
) -> tuple[Tensor]:
    """FlashAttention's operation for sequences of several lengths, which CUDA alone has."""
    is_causal = others[4]
    pieces = [
        F.scaled_dot_product_attention(
            *(x[start:end].transpose(0, 1) for x in (q, k, v)), is_causal=is_causal, scale=scale
        ).transpose(0, 1)
        for start, end in pairwise(edges.tolist())
        if end > start
    ]
    return (torch.cat(pieces),)


@pytest.mark.parametrize("name", ["same document", "causal and same document"])
def test_documents_attended_span_by_span_equal_the_slow_reference(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_has_span_kernel", lambda *_: True)
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", spans_by_hand)
    q, k, v = (torch.cat([x, x], dim=-1) for x in inputs())  # heads of 8
    prepared_mask = prepare_mask(MASKS[name], None, (BATCH, LENGTH, LENGTH), q, flex=True)
    assert prepared_mask.spans is not None
    actual = attend(q, k, v, prepared_mask, q.shape[3] ** -0.5, 0.0)
    expected = plain_attention.attention(q, k, v, MASKS[name], None)
    torch.testing.assert_close(actual.double(), expected, atol=1e-5, rtol=1e-5)


def test_only_masks_of_documents_are_attended_span_by_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_has_span_kernel", lambda *_: True)
    head = torch.empty(0, 8)
    takes = [name for name, mask in MASKS.items() if attention.takes_spans(mask, None, head)]
    assert takes == ["same document", "causal and same document"]
    assert not attention.takes_spans(MASKS["same document"], bias(), head)
    assert not attention.takes_spans(MASKS["same document"], None, torch.empty(0, 12))


def test_the_edges_of_spans_end_in_empty_ones() -> None:
    documents = torch.tensor([[0, 0, 1, -1], [0, 1, 1, 1], [0, 0, 0, 0]])
    for rows, edges in (
        (documents, [0, 2, 3, 4, 5, 8, 12, 12, 12]),
        (documents[:1], [0, 2, 3, 4, 4]),
        (documents[2:], [0, 4]),
    ):
        assert DocumentMask(rows, rows).span_edges().tolist() == edges


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
def test_documents_attended_span_by_span_equal_dense_attention(
    is_causal: bool, is_compiled: bool
) -> None:
    random = torch.Generator().manual_seed(3)
    documents = (torch.arange(300).expand(2, -1) // torch.tensor([[100], [77]])).cuda()
    same = DocumentMask(documents, documents)
    mask = CausalMask() & same if is_causal else same
    shape = (2, 300, 3, 64)
    leaves = [torch.randn(shape, generator=random).cuda().requires_grad_() for _ in range(3)]
    results = []
    for flex, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        q, k, v = (x.to(dtype).transpose(1, 2) for x in leaves)
        prepared_mask = prepare_mask(mask, None, (2, 300, 300), q, flex=flex)
        assert (prepared_mask.spans is not None) == flex
        run = torch.compile(attend) if is_compiled else attend
        out = run(q, k, v, prepared_mask, 64**-0.5, 0.0)
        results.append((out, *torch.autograd.grad(out.square().sum(), leaves)))
        dropped = attend(q, k, v, prepared_mask, 64**-0.5, 0.5)
        assert not torch.equal(dropped, out)
        assert (dropped.mean() - out.mean()).abs() < 0.02
    for narrow, dense in zip(*results, strict=True):
        assert (narrow.float() - dense).norm() < 0.02 * dense.norm()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_flex_attention_equals_dense_attention(name: str, has_bias: bool) -> None:
    length = 256  # of whole blocks
    random = torch.Generator().manual_seed(3)
    documents = torch.arange(length).expand(2, -1) // torch.tensor([[100], [77]])
    prefix = PrefixMask((torch.rand(2, length, generator=random) < 0.3).cuda())
    same = DocumentMask(documents.cuda(), documents.cuda())
    order = torch.randint(-1, 99, (2, length), generator=random).cuda()
    stretched: dict[str, Mask] = {
        "same document": same,
        "causal and same document": CausalMask() & same,
        "causal or prefix": CausalMask() | prefix,
        "prefix decoder": (CausalMask() | prefix) & same,
        "encoder of prefixes": prefix | WindowMask(0),
        "window and document": WindowMask(3) & same,
        "window and global": (WindowMask(1) | GlobalMask(2)) & same,
        "blocks": BlockSparseMask(torch.eye(4, dtype=torch.bool)[None].cuda(), 64) & same,
        "ordered": PermutationMask(order) & same,
        "ordered, before itself": PermutationMask(order, includes_self=False) | WindowMask(0),
        "ragged": RaggedCausalMask(torch.tensor([0, 3]).cuda()),
    }
    mask = stretched.get(name, MASKS[name])
    shape = (2, 2, length, 32)
    q, k, v = (torch.randn(shape, generator=random).cuda().requires_grad_() for _ in range(3))
    added = torch.randn(2, length, length, generator=random).cuda() if has_bias else None
    results = []
    for flex in (True, False):
        prepared_mask = prepare_mask(mask, added, (2, length, length), q, flex=flex)
        out = attend(q, k, v, prepared_mask, 32**-0.5, 0.0)
        grads = torch.autograd.grad(out.square().sum(), (q, k, v))
        results.append((out, *grads))
    for flexed, dense in zip(*results, strict=True):
        torch.testing.assert_close(flexed, dense, atol=2e-3, rtol=2e-3)
