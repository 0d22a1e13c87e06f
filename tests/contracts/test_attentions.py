"""The contract of every kind of attention, checked for every file in `nn/attentions/`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention

from foreword.errors import UserError
from foreword.nn.attentions._contract import AttentionKind, AttentionMechanism, MixerKind
from foreword.nn.masks import CausalMask, DocumentMask, FullMask, Mask
from foreword.settings import kinds
from foreword.testing import plain_attention
from foreword.testing.attentions import (
    D_HEAD,
    HEADS,
    LAYERS,
    LENGTH,
    MASKS,
    SAME,
    assert_same,
    backbone,
    batch,
    build,
    chooses_keys,
    dense,
    documents,
    inputs,
    outcome,
    promised,
)
from foreword.types import Batch

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
    "gated_deltanet": [{"chunk": 16}, {"heads": 3, "d_key": 6, "d_value": 9, "convolution": 1}],
}
# A kind that is not named above is tried with its own settings.
CASES = [(kind, s) for kind in kinds.names("nn/attentions") for s in SETTINGS.get(kind, [{}])]


def make(kind: str, settings: dict[str, Any]) -> Any:
    attention: MixerKind = kinds.load("nn/attentions", kind)(**settings)
    return attention


def make_both(
    kind: str, settings: dict[str, Any]
) -> tuple[AttentionKind, list[AttentionMechanism]]:
    attention = make(kind, settings)
    return attention, build(attention)


MECHANISMS = [case for case in CASES if isinstance(make(*case), AttentionKind)]
KEYED = [case for case in MECHANISMS if chooses_keys(make_both(*case)[1])]
every_mechanism = pytest.mark.parametrize(("kind", "settings"), MECHANISMS, ids=str)
every_keyed_case = pytest.mark.parametrize(("kind", "settings"), KEYED, ids=str)


@pytest.mark.product
@pytest.mark.parametrize(
    ("kind", "settings", "check"),
    [(*case, check) for case in CASES for check in promised(make(*case))],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_every_attention_keeps_the_contract(
    check: Callable[[AttentionKind], None], kind: str, settings: dict[str, Any]
) -> None:
    check(make(kind, settings))


def padded() -> Batch:
    """A batch of two texts of 70 and 110 tokens."""
    whole = batch(FullMask())
    numbers = torch.zeros_like(whole.ids)
    numbers[0, 70:], numbers[1, 110:] = -1, -1
    return replace(whole, mask=DocumentMask(numbers, numbers))


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


@pytest.mark.product
@every_keyed_case
@pytest.mark.parametrize("mask", ["full", "both"])
@pytest.mark.parametrize("device", DEVICES)
def test_flex_attention_equals_dense_attention_with_its_mask(
    kind: str,
    settings: dict[str, Any],
    mask: str,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attention, attention_mechanisms = make_both(kind, settings)
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
        actual = outcome(mechanism(*leaves, prepared_mask, wide**-0.5, 0.0, None), *leaves)
        plain = [x.detach().cpu().requires_grad_() for x in qkv]
        expected = outcome(dense(*plain, allowed), *plain)
        for one, other in zip(actual, expected, strict=True):
            torch.testing.assert_close(one.cpu().double(), other.double(), atol=1e-4, rtol=1e-3)


@every_keyed_case
def test_attention_equals_the_slow_reference(kind: str, settings: dict[str, Any]) -> None:
    attention, attention_mechanisms = make_both(kind, settings)
    own = attention_mechanisms[0].mask(LENGTH, LENGTH)
    assert own is not None
    q, k, v = (x[:1, :, :, :2].detach() for x in inputs())
    prepared_mask = attention.prepare(CausalMask(), None, (1, LENGTH, LENGTH), q, flex=False)
    out = attention_mechanisms[0](q, k, v, prepared_mask, 2**-0.5, 0.0, None)
    some = [0, 1, 17, 64, LENGTH - 1]  # queries: the reference is slow
    expected = dense_rows(q, k, v, own, some)
    torch.testing.assert_close(out[:, :, some].double(), expected, atol=1e-5, rtol=1e-4)


def dense_rows(q: Tensor, k: Tensor, v: Tensor, own: Mask, some: list[int]) -> Tensor:
    mask = CausalMask() & own

    class At:
        def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
            return mask.allows(b, h, torch.tensor(some)[i], j)

    return plain_attention.attention(q[:, :, some], k, v, cast(Mask, At()), None)


def saved_bytes(kind: str, settings: dict[str, Any], length: int) -> int:
    """Return the bytes that forward saves for backward, with the prepared mask."""
    if "length" in settings:
        settings = settings | {"length": length}
    attention, attention_mechanisms = make_both(kind, settings)
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


@pytest.mark.product(few=3)
@every_mechanism
def test_memory_is_linear_in_the_length(kind: str, settings: dict[str, Any]) -> None:
    # Dense attention with a kernel that holds no scores keeps no more than that either.
    less, more = (saved_bytes(kind, settings, length) for length in (1_000, 4_000))
    assert more < 4.6 * less


@pytest.mark.parametrize("share", ["none", "heads", "keys_values", "layers"])
def test_linformer_equals_its_formula(share: str) -> None:
    _, attention_mechanisms = make_both(
        "linformer", {"length": LENGTH, "projected": 9, "share": share}
    )
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
        actual = mechanism(q, k, v, PATTERN_OF_ALL, 0.5, 0.0, None)
        for b in range(2):
            for h in range(HEADS):
                few_k, few_v = (p[h % len(p)] @ x[b, h] for p, x in ((e, k), (f, v)))
                expected = torch.softmax(0.5 * q[b, h] @ few_k.T, -1) @ few_v
                torch.testing.assert_close(actual[b, h], expected, atol=1e-5, rtol=1e-5)


PATTERN_OF_ALL = kinds.load("nn/attentions", "linformer")(length=LENGTH).prepare(
    FullMask(), None, (2, LENGTH, LENGTH), torch.empty(0), flex=False
)


def test_linformer_requires_one_document_a_row_and_both_sides() -> None:
    for mask in (CausalMask(), SAME, CausalMask() & SAME):
        with pytest.raises(UserError, match=r"packing\.document_mask=false"):
            backbone(make("linformer", {"length": LENGTH}))(batch(mask))
    with pytest.raises(UserError, match=f"at most {LENGTH - 1} positions, got {LENGTH} queries"):
        backbone(make("linformer", {"length": LENGTH - 1}))(batch(FullMask()))


@torch.no_grad()
def test_linformer_gives_a_text_the_same_alone_and_padded() -> None:
    model, both = backbone(make("linformer", {"length": LENGTH, "projected": 9})), padded()
    together = model(both).states
    for n, length in enumerate((70, 110)):
        row = slice(n, n + 1)
        alone = Batch(both.ids[row, :length], both.positions[row, :length], FullMask())
        expected = together[row, :length]
        torch.testing.assert_close(model(alone).states, expected, atol=1e-5, rtol=1e-5)


def test_bigbird_draws_other_blocks_for_each_head_and_layer() -> None:
    _, attention_mechanisms = make_both("bigbird", {"block": 4, "random": 3})
    size = (1, LENGTH, LENGTH, torch.device("cpu"), HEADS)
    masks = [mechanism.mask(LENGTH, LENGTH) for mechanism in attention_mechanisms]
    one, other = (mask.dense(*size)[0] for mask in masks if mask is not None)
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(one, other)
    middle = one[:, 60:64].sum(-1)
    assert (
        middle == 4 * (3 + 3 + 1) + 2
    ).all()  # near, drawn, first, and a last one of two positions


def test_an_even_window_of_bigbird_is_refused() -> None:
    with pytest.raises(ValueError, match=r"window: .* must be odd, got 4"):
        make("bigbird", {"window": 4})


@torch.no_grad()
def test_bigbird_behind_a_long_cache_is_refused() -> None:
    model = backbone(make("bigbird", {"block": 8, "random": 1}))
    long = batch(CausalMask())
    hidden = model(replace(long, ids=long.ids[:, :40], positions=long.positions[:, :40]))
    rest = Batch(long.ids[:, 40:], long.positions[:, 40:], CausalMask(40))
    with pytest.raises(UserError, match="reads whole rows at once"):
        model(rest, hidden.cache)
