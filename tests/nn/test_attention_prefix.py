"""A learned prefix of attention: against its formula, and without a position of its own."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foreword.models.encoder_decoder import EncoderDecoder
from foreword.models.transformer import Transformer
from foreword.nn.attention import Attention, AttentionInputs, AttentionParts, prepare_mask
from foreword.nn.attention_prefix import AttentionPrefix
from foreword.nn.attentions.dense import DenseAttention
from foreword.nn.attentions.window import Window
from foreword.nn.init import initialise
from foreword.nn.masks import CausalMask, DocumentMask, FullMask
from foreword.nn.model import Model, neural
from foreword.nn.positions._contract import AttentionPositions
from foreword.nn.positions.alibi import ALiBi
from foreword.nn.positions.rotary import Rotary
from foreword.nn.positions.t5_bias import T5Bias
from foreword.nn.stack_settings import StackSettings
from foreword.settings import kinds
from foreword.testing import plain_attention
from foreword.types import Batch

HEADS, D_HEAD, D_MODEL, LENGTH, PREFIX, VOCAB = 2, 4, 6, 5, 3, 30
SIZES: dict[str, Any] = {"d_model": 16, "layers": 2, "heads": 2, "init_std": 0.3}
SIZES |= {"dropout": 0.0, "attention_dropout": 0.0}
ROTARY = Transformer(**SIZES, position=Rotary())


def opened(model: torch.nn.Module) -> torch.nn.Module:
    """The model, the gates of its prefixes opened."""
    random = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, AttentionPrefix):
            module.gate.data.normal_(generator=random)
    return model


def backbone(settings: StackSettings) -> Any:
    """The settings' backbone with a prefix whose gates are open."""
    model = Model(replace(settings, attention_prefix=PREFIX).build(VOCAB), torch.nn.ModuleDict())
    initialise(model, 1)
    return opened(model.eval()).backbone


def ids(count: int, seed: int = 1) -> Tensor:
    return torch.randint(0, VOCAB, (1, count), generator=torch.Generator().manual_seed(seed))


def at(length: int, start: int = 0) -> Tensor:
    return torch.arange(start, start + length)[None]


def split(x: Tensor) -> Tensor:
    """(length, heads * d_head) -> (1, heads, length, d_head)."""
    return x.view(len(x), HEADS, D_HEAD).transpose(0, 1)[None]


def rotated(x: Tensor, base: float) -> Tensor:
    """x by its positions, each pair of dimensions a complex number that is turned."""
    half = D_HEAD // 2
    angles = np.outer(np.arange(x.shape[2]), base ** -(np.arange(half) / half))
    turned = (x[..., :half].numpy() + 1j * x[..., half:].numpy()) * np.exp(1j * angles)
    return torch.from_numpy(np.concatenate([turned.real, turned.imag], -1))


def test_attention_with_a_prefix_equals_its_formula() -> None:
    """softmax(R q (R k)') v + tanh(g) softmax(q P_k') P_v by hand, in float64; R rotates."""
    torch.manual_seed(1)
    parts = AttentionParts(prefix=PREFIX)
    attention = Attention(
        D_MODEL, HEADS, D_HEAD, bias=True, is_scaled=True, dropout=0.0, parts=parts
    ).double()
    opened(attention)
    x = torch.randn(1, LENGTH, D_MODEL, dtype=torch.float64)
    rotary = Rotary().build(D_MODEL, HEADS, D_HEAD, layers=1, is_causal=True)
    positions = AttentionPositions.consecutive(0, LENGTH, x.device)
    mask = prepare_mask(CausalMask(), None, (1, LENGTH, LENGTH), x, flex=False)
    inputs = AttentionInputs(mask, DenseAttention(), rotary, positions, 0)
    with torch.no_grad():
        k, v = attention.keys_values(x)
        actual = attention(x, (rotary.rotate(k, positions.queries), v), inputs)
        q = split(attention.query(x)[0])
        k, v = (split(part) for part in attention.key_value(x)[0].chunk(2, -1))
        base = Rotary().base
        heads = plain_attention.attention(rotated(q, base), rotated(k, base), v, CausalMask(), None)
        prefix = attention.prefix
        assert prefix is not None
        for h in range(HEADS):
            for i in range(LENGTH):
                scores = [math.exp(float(q[0, h, i] @ key) / 2) for key in prefix.keys[h]]
                for score, value in zip(scores, prefix.values[h], strict=True):
                    share = math.tanh(float(prefix.gate[h])) * score / sum(scores)
                    heads[0, h, i] += share * value
        expected = attention.output(heads[0].transpose(0, 1).reshape(LENGTH, -1))
    torch.testing.assert_close(actual[0], expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("position", [Rotary(), ALiBi(), T5Bias()], ids=lambda p: type(p).__name__)
@torch.no_grad()
def test_a_text_has_the_same_states_wherever_it_stands_in_its_row(position: Any) -> None:
    model = backbone(replace(ROTARY, position=position))
    text, before = ids(7), ids(9, seed=2)
    alone = model(Batch(text, at(7), CausalMask())).states
    numbers = torch.tensor([[0] * 9 + [1] * 7])
    positions = torch.cat([at(9), at(7)], 1)
    mask = CausalMask() & DocumentMask(numbers, numbers)
    packed = model(Batch(torch.cat([before, text], 1), positions, mask)).states
    torch.testing.assert_close(packed[:, 9:], alone, atol=1e-5, rtol=1e-5)


def both_sides(settings: StackSettings) -> Batch:
    source = Batch(ids(6), at(6), FullMask()) if settings.reads_source else None
    cross = None if source is None else FullMask()
    return Batch(ids(8, seed=3), at(8), CausalMask(), source=source, cross_mask=cross)


@pytest.mark.parametrize(
    "settings",
    [
        ROTARY,
        replace(ROTARY, share="all"),
        replace(ROTARY, attention=Window(radius=2)),
        Transformer(**SIZES, init="uniform"),
        EncoderDecoder(**SIZES, position=T5Bias(), scale_scores=False, init="t5"),
    ],
    ids=["rotary", "shared", "window", "uniform", "encoder_decoder"],
)
@torch.no_grad()
def test_closed_gates_leave_the_outputs_as_they_are(settings: StackSettings) -> None:
    batch = both_sides(settings)
    plain, prefixed = (
        Model(replace(settings, attention_prefix=n).build(VOCAB), torch.nn.ModuleDict()).eval()
        for n in (0, PREFIX)
    )
    initialise(plain, 1)
    initialise(prefixed, 2)
    missing, unexpected = prefixed.load_state_dict(plain.state_dict(), strict=False)
    assert {name.split(".")[-1] for name in missing} == {"keys", "values", "gate"}
    assert not unexpected
    expected = plain.backbone(batch).states
    assert torch.equal(prefixed.backbone(batch).states, expected)
    assert not torch.equal(opened(prefixed).backbone(batch).states, expected)  # type: ignore[operator,union-attr]


@pytest.mark.parametrize(
    "settings", [ROTARY, EncoderDecoder(**SIZES, position=T5Bias())], ids=kinds.name_of
)
@torch.no_grad()
def test_states_with_a_cache_equal_those_without(settings: StackSettings) -> None:
    model, batch = backbone(settings), both_sides(settings)
    expected = model(batch).states
    first = model(replace(batch, ids=batch.ids[:, :5], positions=at(5)))
    rest = Batch(batch.ids[:, 5:], at(3, 5), CausalMask(5), cross_mask=batch.cross_mask)
    states = torch.cat([first.states, model(rest, first.cache).states], 1)
    torch.testing.assert_close(states, expected, atol=1e-5, rtol=1e-5)


def test_a_prefix_adds_as_many_parameters_as_its_formula_says() -> None:
    def count(settings: StackSettings) -> int:
        return sum(p.numel() for p in neural(settings.build(VOCAB)).parameters())

    each = 2 * PREFIX * 16 + 2  # heads * d_head = 16; a gate for each head
    for settings, attentions in (
        (ROTARY, 2),
        (replace(ROTARY, share="attention"), 1),
        (EncoderDecoder(**SIZES), 6),  # self-attention of both stacks, and cross-attention
    ):
        prefixed = replace(settings, attention_prefix=PREFIX)
        assert count(prefixed) - count(settings) == attentions * each


def test_a_prefix_is_learned_from_the_second_step_on() -> None:
    """Where the gates are closed only they have a gradient."""
    model = Model(replace(ROTARY, attention_prefix=PREFIX).build(VOCAB), torch.nn.ModuleDict())
    initialise(model, 1)
    for expected in ({"gate"}, {"gate", "keys", "values"}):
        model.zero_grad()
        model.backbone(both_sides(ROTARY)).states.square().sum().backward()
        learned = {
            name.split(".")[-1]
            for name, p in model.named_parameters()
            if "prefix" in name and p.grad is not None and p.grad.any()
        }
        assert learned == expected
        opened(model)
