"""The contract of attention mechanisms and of recurrences in their place, as functions.

Attention is compared with one line of algebra in float64, under its own mask and the batch's. A
recurrence has neither keys nor a mask of its own, and is read under causal masks alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.models.transformer import Transformer
from foreword.nn.attentions._contract import AttentionKind, AttentionMechanism, MixerKind
from foreword.nn.init import initialise
from foreword.nn.masks import CausalMask, DocumentMask, FullMask, Mask
from foreword.nn.model import Backbone, Model
from foreword.nn.positions.learned import Learned
from foreword.nn.positions.rotary import Rotary
from foreword.testing.cases import SEED, SIZE
from foreword.types import Batch

HEADS, D_HEAD, LAYERS = 2, 4, 2
LENGTH = 150  # a multiple of no block size
SHAPE = (2, LENGTH, LENGTH)


def check_attention(attention: MixerKind) -> None:
    """Check all that an attention mechanism promises.

    Args:
        attention: settings of the kind, for rows of 150 tokens; those that make it leave keys out
            in such rows test most.

    Raises:
        AssertionError: a promise is broken.
    """
    assert is_dataclass(type(attention)), "the settings of attention are a frozen dataclass"
    for check in promised(attention):
        check(attention)


def promised(attention: MixerKind) -> list[Callable[[Any], None]]:
    """Return the checks of what the attention promises; what mixes all keys chooses none."""
    if not isinstance(attention, AttentionKind):
        return [check for check in ATTENTION_CHECKS if check not in MECHANISM_CHECKS]
    chooses = chooses_keys(build(attention))
    return [check for check in ATTENTION_CHECKS if chooses or check not in KEY_CHECKS]


def documents() -> Tensor:
    """Return document numbers of two rows, (2, length): three documents; two and padding."""
    numbers = torch.stack([torch.arange(LENGTH) // 60, torch.arange(LENGTH) // 70])
    numbers[1, 140:] = -1
    return numbers


SAME = DocumentMask(documents(), documents())
MASKS = {"full": FullMask(), "causal": CausalMask(), "documents": SAME, "both": CausalMask() & SAME}


def build(attention: AttentionKind) -> list[AttentionMechanism]:
    """Return the modules of a stack, the same each time."""
    torch.manual_seed(SEED)
    return attention.build(HEADS, D_HEAD, LAYERS)


def chooses_keys(mechanisms: list[AttentionMechanism]) -> bool:
    """Return whether it attends to keys that a mask can choose; else it mixes them all."""
    return mechanisms[0].mask(LENGTH, LENGTH) is not None


def readable(attention: MixerKind, mask: Mask) -> Mask:
    """Return the mask, made causal for what reads from left to right."""
    return mask if isinstance(attention, AttentionKind) else CausalMask() & mask


def inputs(length: int = LENGTH, batch: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values, (batch, heads, length, d_head), that take gradients."""
    random = torch.Generator().manual_seed(1)
    shape = (batch, HEADS, length, D_HEAD)
    q, k, v = (torch.randn(shape, generator=random).requires_grad_() for _ in range(3))
    return q, k, v


def dense(q: Tensor, k: Tensor, v: Tensor, mask: Mask, plus: Tensor | None = None) -> Tensor:
    """Return attention under a mask, with `plus` added to the scores, in float64."""
    allowed = mask.dense(len(q), q.shape[2], k.shape[2], q.device, HEADS)
    scores = q.double() @ k.double().transpose(-2, -1) * q.shape[3] ** -0.5
    scores = (scores if plus is None else scores + plus).masked_fill(~allowed, -1e300)
    mixed = torch.softmax(scores, -1) @ v.double()
    return mixed.masked_fill(~allowed.any(-1, keepdim=True), 0.0)


def assert_same(actual: list[Tensor], expected: list[Tensor]) -> None:
    """Raise AssertionError unless the tensors are equal but for rounding."""
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one.double(), other.double(), atol=1e-5, rtol=1e-4)


def outcome(out: Tensor, *inputs: Tensor) -> list[Tensor]:
    """Return the output and its gradients."""
    return [out, *torch.autograd.grad(out.square().sum(), inputs)]


def backbone(attention: MixerKind, *, is_rotary: bool = True) -> Backbone:
    """Return a small Transformer with this attention."""
    settings = Transformer(
        d_model=HEADS * D_HEAD,
        layers=LAYERS,
        heads=HEADS,
        position=Rotary() if is_rotary else Learned(LENGTH),
        attention=attention,
        dropout=0.0,
        attention_dropout=0.0,
        init_std=0.3,
    )
    torch.manual_seed(SEED)
    built = settings.build(SIZE).eval()
    initialise(Model(built, nn.ModuleDict()), SEED)
    return built


def batch(mask: Mask, length: int = LENGTH) -> Batch:
    """Return two rows of random ids."""
    ids = torch.randint(0, SIZE, (2, length), generator=torch.Generator().manual_seed(3))
    return Batch(ids, torch.arange(length).expand(2, -1), mask)


def check_it_is_dense_attention_under_its_mask(attention: AttentionKind) -> None:
    """Check output and gradients of each layer against algebra, under each kind of mask."""
    mechanisms, qkv = build(attention), inputs()
    for mask in MASKS.values():
        prepared_mask = attention.prepare(mask, None, SHAPE, qkv[0], flex=False)
        for mechanism in mechanisms:
            out = mechanism(*qkv, prepared_mask, D_HEAD**-0.5, 0.0, None)
            mechanism_mask = mechanism.mask(LENGTH, LENGTH)
            assert mechanism_mask is not None, "some layers have a mask and some have none"
            assert_same(outcome(out, *qkv), outcome(dense(*qkv, mask & mechanism_mask), *qkv))


def check_position_scores_and_biases_are_added(attention: AttentionKind) -> None:
    """Check that a bias and position scores are added, or refused where keys are mixed."""
    mechanism, random = build(attention)[-1], torch.Generator().manual_seed(2)
    mechanism_mask = mechanism.mask(LENGTH, LENGTH)
    for is_bias in (True, False):
        qkv, mask = inputs(), MASKS["both"]
        shape = (HEADS, LENGTH, LENGTH) if is_bias else (2, HEADS, LENGTH, LENGTH)
        added = torch.randn(shape, generator=random).requires_grad_()
        bias, position_scores = (added, None) if is_bias else (None, added)
        try:
            prepared_mask = attention.prepare(mask, bias, SHAPE, qkv[0], flex=False)
            out = mechanism(*qkv, prepared_mask, D_HEAD**-0.5, 0.0, position_scores)
        except UserError:
            assert mechanism_mask is None, "a bias or position scores are refused"
            continue
        assert mechanism_mask is not None, "what mixes all keys accepts a bias of single ones"
        plus = added if is_bias else added * D_HEAD**-0.5
        expected = dense(*qkv, mask & mechanism_mask, plus)
        assert_same(outcome(out, *qkv, added), outcome(expected, *qkv, added))


def check_a_query_without_keys_gives_zeros(attention: AttentionKind) -> None:
    """Check that a query that may attend to nothing gives zeros and finite gradients."""
    mechanisms, qkv = build(attention), inputs()
    nowhere = torch.full((2, LENGTH), -2)
    nowhere[:, ::3] = documents()[:, ::3]
    mask = DocumentMask(nowhere, documents())
    prepared_mask = attention.prepare(mask, None, SHAPE, qkv[0], flex=False)
    out = mechanisms[0](*qkv, prepared_mask, 0.5, 0.0, None)
    assert (out[:, :, 1::3] == 0).all(), "a query without keys gives more than zeros"
    assert all(x.isfinite().all() for x in outcome(out, *qkv)), "it gives numbers not finite"


def check_dropout_drops(attention: AttentionKind) -> None:
    """Check that dropout of attention weights changes the output."""
    mechanism, qkv = build(attention)[0], inputs()
    prepared_mask = attention.prepare(FullMask(), None, SHAPE, qkv[0], flex=False)
    plain, dropped = (mechanism(*qkv, prepared_mask, 0.5, rate, None) for rate in (0.0, 0.5))
    assert not torch.allclose(plain, dropped), "dropout changes nothing"


@torch.no_grad()
def check_documents_do_not_see_each_other(attention: MixerKind) -> None:
    """Check that other documents of a row change nothing, or that mixing attention refuses them."""
    model, original = backbone(attention), batch(readable(attention, SAME))
    try:
        before = model(original).states
    except UserError:
        assert not attention.supports_document_masking, "document masks are refused"
        return
    assert attention.supports_document_masking, "document masks are accepted"
    first = documents() == 0
    changed = replace(original, ids=torch.where(first, original.ids, (original.ids + 1) % SIZE))
    after = model(changed).states
    assert torch.equal(before[first], after[first]), "a document sees another"
    assert not torch.equal(before, after)


@torch.no_grad()
def check_padding_changes_nothing(attention: MixerKind) -> None:
    """Check that padding changes no state of a text."""
    whole = batch(readable(attention, FullMask()))
    numbers = torch.zeros_like(whole.ids)
    numbers[0, 70:], numbers[1, 110:] = -1, -1
    original, is_text = (
        replace(whole, mask=readable(attention, DocumentMask(numbers, numbers))),
        numbers == 0,
    )
    changed = replace(original, ids=torch.where(is_text, original.ids, (original.ids + 1) % SIZE))
    model = backbone(attention)
    is_same = torch.equal(model(original).states[is_text], model(changed).states[is_text])
    assert is_same, "a text sees padding"


@torch.no_grad()
def check_a_row_alone_is_the_row_in_a_group(attention: MixerKind) -> None:
    """Check that the rows of a batch do not see each other."""
    model, whole = backbone(attention), batch(readable(attention, FullMask()))
    together = model(whole).states
    for n in range(2):
        row = slice(n, n + 1)
        alone = Batch(whole.ids[row], whole.positions[row], whole.mask)
        torch.testing.assert_close(model(alone).states, together[row], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def check_bfloat16_is_close_to_float32(attention: MixerKind) -> None:
    """Check that autocast gives states in bf16, about those of fp32."""
    model, whole = backbone(attention, is_rotary=False), batch(readable(attention, FullMask()))
    expected = model(whole).states
    with torch.autocast("cpu", torch.bfloat16):
        actual = model(whole).states
    assert actual.dtype == torch.bfloat16
    assert (actual - expected).abs().mean() < 0.03 * expected.abs().mean()


@torch.no_grad()
def check_a_cache_changes_nothing(attention: MixerKind) -> None:
    """Check that short rows read token by token have the states of a whole row."""
    model = backbone(attention)
    for length in (1, 7, 36):
        row = batch(CausalMask(), length)
        try:
            expected = model(row).states
        except UserError:
            assert isinstance(attention, AttentionKind), "a causal row is refused"
            assert not chooses_keys(build(attention)), "a causal row is refused"
            return
        cache, actual = None, []
        for n in range(length):
            token = Batch(row.ids[:, n : n + 1], row.positions[:, n : n + 1], CausalMask(n))
            hidden = model(token, cache)
            cache = hidden.cache
            actual.append(hidden.states)
        torch.testing.assert_close(torch.cat(actual, 1), expected, atol=1e-5, rtol=1e-5)


ATTENTION_CHECKS: tuple[Callable[[Any], None], ...] = (
    check_it_is_dense_attention_under_its_mask,
    check_position_scores_and_biases_are_added,
    check_a_query_without_keys_gives_zeros,
    check_dropout_drops,
    check_documents_do_not_see_each_other,
    check_padding_changes_nothing,
    check_a_row_alone_is_the_row_in_a_group,
    check_bfloat16_is_close_to_float32,
    check_a_cache_changes_nothing,
)
# Of attention that chooses among keys, and does not mix them all.
KEY_CHECKS = (check_it_is_dense_attention_under_its_mask, check_a_query_without_keys_gives_zeros)
# Of attention from queries, keys and values.
MECHANISM_CHECKS = (
    *KEY_CHECKS,
    check_position_scores_and_biases_are_added,
    check_dropout_drops,
)
