"""What every way to mix promises, for every file in `nn/attentions/`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention

from foreword import kinds
from foreword.errors import UserError
from foreword.models.transformer import Transformer
from foreword.nn.attentions._contract import AttentionKind, AttentionMechanism
from foreword.nn.init import initialise
from foreword.nn.masks import CausalMask, DocumentMask, FullMask, Mask
from foreword.nn.model import Backbone, Model
from foreword.nn.positions.learned import Learned
from foreword.nn.positions.rotary import Rotary
from foreword.types import Batch
from tests.nn import reference

from .cases import SEED, SIZE

HEADS, D_HEAD, LAYERS = 2, 4, 2
LENGTH = 150  # of whole blocks nowhere
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "window": [
        {"radius": 5},
        {"radius": 16, "global_tokens": 3},
        {"radius": 2, "global_tokens": 40},
    ],
    "bigbird": [
        {"block": 8, "random": 2},
        {"block": 8, "random": 2, "random_from": "start", "per_head": False},
        {"block": 4, "window": 5, "ends": 2, "random": 0},
        {"block": 8, "ends": 0, "random": 1, "seed": 3},
    ],
    "linformer": [
        {"length": LENGTH, "projected": 9, "share": share}
        for share in ("none", "heads", "keys_values", "layers")
    ],
}
# A kind that is not named above is tried with its own settings.
CASES = [(kind, s) for kind in kinds.names("nn/attentions") for s in SETTINGS.get(kind, [{}])]
every_case = pytest.mark.parametrize(("kind", "settings"), CASES, ids=str)


def build(kind: str, settings: dict[str, Any]) -> tuple[AttentionKind, list[AttentionMechanism]]:
    attention: AttentionKind = kinds.load("nn/attentions", kind)(**settings)
    torch.manual_seed(SEED)
    return attention, attention.build(HEADS, D_HEAD, LAYERS)


def selects(attention_mechanisms: list[AttentionMechanism]) -> bool:
    """Whether it chooses among keys, and is not a mixture of them all."""
    return attention_mechanisms[0].mask(LENGTH, LENGTH) is not None


def documents() -> Tensor:
    """Three documents, and two with padding behind."""
    numbers = torch.stack([torch.arange(LENGTH) // 60, torch.arange(LENGTH) // 70])
    numbers[1, 140:] = -1
    return numbers


SAME = DocumentMask(documents(), documents())
MASKS = {"full": FullMask(), "causal": CausalMask(), "documents": SAME, "both": CausalMask() & SAME}


def inputs(length: int = LENGTH, batch: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    shape = (batch, HEADS, length, D_HEAD)
    q, k, v = (torch.randn(shape, generator=random).requires_grad_() for _ in range(3))
    return q, k, v


def added(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2)).requires_grad_()


def dense(  # one line of algebra, in float64
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, plus: Tensor | None = None
) -> Tensor:
    allowed = mask.dense(len(q), q.shape[2], k.shape[2], q.device, HEADS)
    scores = q.double() @ k.double().transpose(-2, -1) * q.shape[3] ** -0.5
    scores = (scores if plus is None else scores + plus).masked_fill(~allowed, -1e300)
    mixed = torch.softmax(scores, -1) @ v.double()
    return mixed.masked_fill(~allowed.any(-1, keepdim=True), 0.0)


def assert_same(found: list[Tensor], wanted: list[Tensor]) -> None:
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other.double(), atol=1e-5, rtol=1e-4)


def outcome(out: Tensor, *of: Tensor) -> list[Tensor]:
    return [out, *torch.autograd.grad(out.square().sum(), of)]


@every_case
@pytest.mark.parametrize("mask", MASKS)
def test_attention_equals_dense_attention_with_its_mask(
    kind: str, settings: dict[str, Any], mask: str
) -> None:
    attention, attention_mechanisms = build(kind, settings)
    qkv, shape = inputs(), (2, LENGTH, LENGTH)
    if not selects(attention_mechanisms):
        return
    prepared_mask = attention.prepare(MASKS[mask], None, shape, qkv[0], flex=False)
    for mechanism in attention_mechanisms:
        out = mechanism(*qkv, prepared_mask, D_HEAD**-0.5, 0.0, None)
        own = mechanism.mask(LENGTH, LENGTH)
        assert own is not None
        assert_same(outcome(out, *qkv), outcome(dense(*qkv, MASKS[mask] & own), *qkv))


# On a GPU the kernels that training runs; on a CPU, where these have no backward, plain algebra
# over the same block mask.
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]


@every_case
@pytest.mark.parametrize("mask", ["full", "both"])
@pytest.mark.parametrize("device", DEVICES)
def test_flex_is_dense_attention_with_its_mask(
    kind: str,
    settings: dict[str, Any],
    mask: str,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attention, attention_mechanisms = build(kind, settings)
    if not selects(attention_mechanisms):
        return
    torch._dynamo.reset()  # each mask is compiled anew, and there is a limit to that
    if device == "cpu":
        monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
        monkeypatch.setattr("foreword.nn.attention._flex", lambda: flex_attention.flex_attention)
    wide = 16  # the narrowest heads of its kernels
    qkv = tuple(x.detach().repeat(1, 1, 1, wide // D_HEAD).to(device) for x in inputs())
    numbers = documents().to(device)
    both = FullMask() if mask == "full" else CausalMask() & DocumentMask(numbers, numbers)
    prepared_mask = attention.prepare(both, None, (2, LENGTH, LENGTH), qkv[0], flex=True)
    for mechanism in attention_mechanisms:
        own = mechanism.mask(LENGTH, LENGTH)
        assert own is not None
        allowed = MASKS[mask] & own
        if device == "cpu":
            out = mechanism(*qkv, prepared_mask, wide**-0.5, 0.0, None)
            assert_same([out], [dense(*qkv, allowed)])
            continue
        leaves = [x.requires_grad_() for x in qkv]
        found = outcome(mechanism(*leaves, prepared_mask, wide**-0.5, 0.0, None), *leaves)
        plain = [x.detach().cpu().requires_grad_() for x in qkv]
        wanted = outcome(dense(*plain, allowed), *plain)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one.cpu().double(), other.double(), atol=1e-4, rtol=1e-3)


@every_case
def test_attention_equals_the_slow_reference(kind: str, settings: dict[str, Any]) -> None:
    attention, attention_mechanisms = build(kind, settings)
    own = attention_mechanisms[0].mask(LENGTH, LENGTH)
    if own is None:
        return
    q, k, v = (x[:1, :, :, :2].detach() for x in inputs())
    prepared_mask = attention.prepare(CausalMask(), None, (1, LENGTH, LENGTH), q, flex=False)
    out = attention_mechanisms[0](q, k, v, prepared_mask, 2**-0.5, 0.0, None)
    some = [0, 1, 17, 64, LENGTH - 1]  # queries: the reference is slow
    wanted = dense_rows(q, k, v, own, some)
    torch.testing.assert_close(out[:, :, some].double(), wanted, atol=1e-5, rtol=1e-4)


def dense_rows(q: Tensor, k: Tensor, v: Tensor, own: Mask, some: list[int]) -> Tensor:
    mask = CausalMask() & own

    class At:
        def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
            return mask.allows(b, h, torch.tensor(some)[i], j)

    return reference.attention(q[:, :, some], k, v, cast(Mask, At()), None)


@every_case
@pytest.mark.parametrize("how", ["bias", "extra"])
def test_position_scores_and_biases_are_added(
    kind: str, settings: dict[str, Any], how: str
) -> None:
    attention, attention_mechanisms = build(kind, settings)
    qkv, shape = inputs(), (2, LENGTH, LENGTH)
    bias = added(HEADS, LENGTH, LENGTH) if how == "bias" else None
    extra = added(2, HEADS, LENGTH, LENGTH) if how == "extra" else None
    plus = bias if extra is None else extra * D_HEAD**-0.5
    assert plus is not None
    of = (*qkv, extra if bias is None else bias)

    def attend() -> Tensor:
        prepared_mask = attention.prepare(MASKS["both"], bias, shape, qkv[0], flex=False)
        return attention_mechanisms[1](*qkv, prepared_mask, D_HEAD**-0.5, 0.0, extra)

    own = attention_mechanisms[1].mask(LENGTH, LENGTH)
    if own is None:
        with pytest.raises(UserError):
            attend()
        return
    wanted = dense(*qkv, MASKS["both"] & own, plus)
    assert_same(outcome(attend(), *of), outcome(wanted, *of))  # type: ignore[arg-type]


@every_case
def test_a_query_without_keys_gives_zeros(kind: str, settings: dict[str, Any]) -> None:
    attention, attention_mechanisms = build(kind, settings)
    if not selects(attention_mechanisms):
        return
    nowhere = torch.full((2, LENGTH), -2)
    nowhere[:, ::3] = documents()[:, ::3]
    mask = DocumentMask(nowhere, documents())
    qkv = inputs()
    prepared_mask = attention.prepare(mask, None, (2, LENGTH, LENGTH), qkv[0], flex=False)
    out = attention_mechanisms[0](*qkv, prepared_mask, 0.5, 0.0, None)
    assert (out[:, :, 1::3] == 0).all()
    assert all(x.isfinite().all() for x in outcome(out, *qkv))


@every_case
def test_dropout_drops(kind: str, settings: dict[str, Any]) -> None:
    attention, attention_mechanisms = build(kind, settings)
    qkv = inputs()
    prepared_mask = attention.prepare(FullMask(), None, (2, LENGTH, LENGTH), qkv[0], flex=False)
    one, other = (
        attention_mechanisms[0](*qkv, prepared_mask, 0.5, rate, None) for rate in (0.0, 0.5)
    )
    assert not torch.allclose(one, other)


def backbone(kind: str, settings: dict[str, Any], *, is_rotary: bool = True) -> Backbone:
    attention, _ = build(kind, settings)
    model = Transformer(
        d_model=HEADS * D_HEAD,
        layers=LAYERS,
        heads=HEADS,
        position=Rotary() if is_rotary else Learned(LENGTH),
        attention=attention,
        dropout=0.0,
        attention_dropout=0.0,
        init_std=0.3,
    )
    built = model.build(SIZE).eval()
    initialise(Model(built, torch.nn.ModuleDict()), SEED)
    return built


def batch(mask: Mask, length: int = LENGTH) -> Batch:
    ids = torch.randint(0, SIZE, (2, length), generator=torch.Generator().manual_seed(3))
    return Batch(ids, torch.arange(length).expand(2, -1), mask)


@every_case
@torch.no_grad()
def test_documents_do_not_see_each_other(kind: str, settings: dict[str, Any]) -> None:
    model, one = backbone(kind, settings), batch(SAME)
    if not selects(build(kind, settings)[1]):
        with pytest.raises(UserError, match="a row, which must be one"):
            model(one)
        return
    first = documents() == 0
    other = replace(one, ids=torch.where(first, one.ids, (one.ids + 1) % SIZE))
    before, after = model(one).states, model(other).states
    assert torch.equal(before[first], after[first])
    assert not torch.equal(before, after)


@every_case
@torch.no_grad()
def test_a_row_alone_is_the_row_in_a_group(kind: str, settings: dict[str, Any]) -> None:
    model, both = backbone(kind, settings), batch(FullMask())
    together = model(both).states
    for n in range(2):
        row = slice(n, n + 1)
        alone = Batch(both.ids[row], both.positions[row], FullMask())
        torch.testing.assert_close(model(alone).states, together[row], atol=1e-5, rtol=1e-5)


@every_case
@torch.no_grad()
def test_bfloat16_is_close_to_float32(kind: str, settings: dict[str, Any]) -> None:
    model, both = backbone(kind, settings, is_rotary=False), batch(FullMask())
    wanted = model(both).states
    with torch.autocast("cpu", torch.bfloat16):
        found = model(both).states
    assert found.dtype == torch.bfloat16
    assert (found - wanted).abs().mean() < 0.03 * wanted.abs().mean()


@every_case
@pytest.mark.parametrize("length", [1, 7, 36])
@torch.no_grad()
def test_short_rows_and_caches_are_read_or_refused(
    kind: str, settings: dict[str, Any], length: int
) -> None:
    model, row = backbone(kind, settings), batch(CausalMask(), length)
    if not selects(build(kind, settings)[1]):
        with pytest.raises(UserError, match="a row, which must be one"):
            model(row)
        return
    wanted, memory, found = model(row).states, None, []
    for n in range(length):
        one = Batch(row.ids[:, n : n + 1], row.positions[:, n : n + 1], CausalMask(n))
        hidden = model(one, memory)
        memory = hidden.cache
        found.append(hidden.states)
    torch.testing.assert_close(torch.cat(found, 1), wanted, atol=1e-5, rtol=1e-5)


def saved_bytes(kind: str, settings: dict[str, Any], length: int) -> int:
    """What forward keeps for backward, and the pattern."""
    if "length" in settings:
        settings = settings | {"length": length}
    attention, attention_mechanisms = build(kind, settings)
    qkv = inputs(length, batch=1)
    kept: dict[int, int] = {}

    def note(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        prepared_mask = attention.prepare(FullMask(), None, (1, length, length), qkv[0], flex=False)
        out = attention_mechanisms[0](*qkv, prepared_mask, 0.5, 0.0, None)
    assert out.shape == qkv[0].shape
    return sum(kept.values())


@every_case
def test_memory_grows_with_the_length(kind: str, settings: dict[str, Any]) -> None:
    # Dense attention with a kernel that holds no scores keeps no more than that either.
    less, more = (saved_bytes(kind, settings, length) for length in (1_000, 4_000))
    assert more < 4.6 * less


@pytest.mark.parametrize("share", ["none", "heads", "keys_values", "layers"])
def test_linformer_is_its_formula(share: str) -> None:
    _, attention_mechanisms = build("linformer", {"length": LENGTH, "projected": 9, "share": share})
    q, k, v = inputs()
    names = [name for mechanism in attention_mechanisms for name, _ in mechanism.named_parameters()]
    assert len(set(map(id, attention_mechanisms))) == (1 if share == "layers" else LAYERS)
    assert len(names) == LAYERS * (2 if share in ("none", "heads") else 1)
    for mechanism in attention_mechanisms:
        e = mechanism.get_parameter("keys.weight").view(-1, 9, LENGTH)
        f = e
        if share in ("none", "heads"):
            f = mechanism.get_parameter("values.weight").view(-1, 9, LENGTH)
        assert len(e) == (HEADS if share == "none" else 1)
        found = mechanism(q, k, v, PATTERN_OF_ALL, 0.5, 0.0, None)
        for b in range(2):
            for h in range(HEADS):
                few_k, few_v = (p[h % len(p)] @ x[b, h] for p, x in ((e, k), (f, v)))
                wanted = torch.softmax(0.5 * q[b, h] @ few_k.T, -1) @ few_v
                torch.testing.assert_close(found[b, h], wanted, atol=1e-5, rtol=1e-5)


PATTERN_OF_ALL = kinds.load("nn/attentions", "linformer")(length=LENGTH).prepare(
    FullMask(), None, (2, LENGTH, LENGTH), torch.empty(0), flex=False
)


def test_linformer_reads_one_text_a_row_from_both_sides() -> None:
    for mask in (CausalMask(), SAME, CausalMask() & SAME):
        with pytest.raises(UserError, match=r"packing\.document_mask=false"):
            backbone("linformer", {"length": LENGTH})(batch(mask))
    with pytest.raises(UserError, match=f"at most {LENGTH - 1} places, got {LENGTH} queries"):
        backbone("linformer", {"length": LENGTH - 1}, is_rotary=True)(batch(FullMask()))


def padded() -> tuple[Tensor, Batch]:
    """A batch of two texts of 70 and 110 tokens; and which places are theirs."""
    whole = batch(FullMask())
    numbers = torch.zeros_like(whole.ids)
    numbers[0, 70:], numbers[1, 110:] = -1, -1
    return numbers == 0, replace(whole, mask=DocumentMask(numbers, numbers))


@every_case
@torch.no_grad()
def test_padding_content_changes_nothing(kind: str, settings: dict[str, Any]) -> None:
    model, (is_text, one) = backbone(kind, settings), padded()
    other = replace(one, ids=torch.where(is_text, one.ids, (one.ids + 1) % SIZE))
    assert torch.equal(model(one).states[is_text], model(other).states[is_text])


@torch.no_grad()
def test_linformer_gives_a_text_the_same_alone_and_padded() -> None:
    model, (_, both) = backbone("linformer", {"length": LENGTH, "projected": 9}), padded()
    together = model(both).states
    for n, length in enumerate((70, 110)):
        row = slice(n, n + 1)
        alone = Batch(both.ids[row, :length], both.positions[row, :length], FullMask())
        found = together[row, :length]
        torch.testing.assert_close(model(alone).states, found, atol=1e-5, rtol=1e-5)


def test_bigbird_draws_other_blocks_for_each_head_and_layer() -> None:
    _, attention_mechanisms = build("bigbird", {"block": 4, "random": 3})
    size = (1, LENGTH, LENGTH, torch.device("cpu"), HEADS)
    masks = [mechanism.mask(LENGTH, LENGTH) for mechanism in attention_mechanisms]
    one, other = (mask.dense(*size)[0] for mask in masks if mask is not None)
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(one, other)
    middle = one[:, 60:64].sum(-1)
    assert (middle == 4 * (3 + 3 + 1) + 2).all()  # near, drawn, first, and a last one of two places


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("window", {"radius": 0}, "radius: must be a whole number from 1"),
        ("window", {"global_tokens": -1}, "global_tokens: must be a whole number from 0"),
        ("bigbird", {"window": 4}, "window: .* must be odd, got 4"),
        ("bigbird", {"random": -1}, "random: must be a whole number from 0"),
        ("linformer", {"projected": 0}, "projected: must be a whole number from 1"),
    ],
)
def test_impossible_settings_are_refused(kind: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kinds.load("nn/attentions", kind)(**settings)


@torch.no_grad()
def test_bigbird_behind_a_long_cache_is_refused() -> None:
    model = backbone("bigbird", {"block": 8, "random": 1})
    long = batch(CausalMask())
    hidden = model(replace(long, ids=long.ids[:, :40], positions=long.positions[:, :40]))
    rest = Batch(long.ids[:, 40:], long.positions[:, 40:], CausalMask(40))
    with pytest.raises(UserError, match="reads whole rows at once"):
        model(rest, hidden.cache)
