"""The distributions of initial weights, and what settings share or exclude."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from foreword.models.encoder_decoder import EncoderDecoder
from foreword.models.transformer import Transformer
from foreword.nn.attention import Attention
from foreword.nn.feedforward import FeedForward
from foreword.nn.init import initialise
from foreword.nn.masks import CausalMask, FullMask
from foreword.nn.model import Model
from foreword.nn.positions.learned import Learned
from foreword.nn.positions.rotary import Rotary
from foreword.nn.positions.t5_bias import T5Bias
from foreword.nn.stack_settings import StackSettings
from foreword.types import Batch

VOCAB = 1000

BERT = Transformer(
    d_model=64,
    norm_position="post",
    position=Learned(32),
    segments=2,
    normalise_embedding=True,
)
GPT2 = Transformer(d_model=64, activation="gelu_tanh", position=Learned(32), init="gpt2")
LLAMA = Transformer(
    d_model=64,
    d_ff=168,
    activation="swiglu",
    norm="rms",
    bias=False,
    position=Rotary(),
    tied=False,
    init="gpt2",
)
T5 = EncoderDecoder(
    d_model=64,
    heads=3,
    d_head=24,
    activation="relu",
    norm="rms",
    bias=False,
    position=T5Bias(),
    scale_scores=False,
    scale_logits=True,
    init="t5",
    decoder_layers=2,
)
FAMILIES: dict[str, StackSettings] = {"bert": BERT, "gpt2": GPT2, "llama": LLAMA, "t5": T5}


def build(settings: StackSettings, *, is_bert: bool = False, seed: int = 1) -> Model:
    backbone = settings.build(VOCAB)
    head = backbone.build_softmax_head(transform=is_bert, bias=is_bert)
    model = Model(backbone, nn.ModuleDict({"token": head})).eval()
    initialise(model, seed)
    return model


@pytest.mark.parametrize("name", FAMILIES)
def test_the_initial_loss_is_the_chance_loss(name: str) -> None:
    model, random = build(FAMILIES[name], is_bert=name == "bert"), torch.Generator().manual_seed(2)
    ids, targets = torch.randint(0, VOCAB, (2, 16, 32), generator=random)
    positions = torch.arange(32).expand(16, -1)
    mask = FullMask() if name == "bert" else CausalMask()
    batch = Batch(ids, positions, mask, targets, torch.ones(16, 32))
    if name == "t5":
        source = Batch(ids.flip(0), positions, FullMask())
        batch = replace(batch, source=source, cross_mask=FullMask())
    with torch.no_grad():
        loss = model.token_head.loss(model.backbone(batch), batch)
    # T5's logits start with variance 1, which costs half a nat.
    extra = 0.5 if name == "t5" else 0.0
    assert (loss.total / loss.count).item() == pytest.approx(math.log(VOCAB) + extra, abs=0.15)


@pytest.mark.parametrize("name", FAMILIES)
def test_another_seed_gives_other_weights(name: str) -> None:
    one, other = build(FAMILIES[name]), build(FAMILIES[name], seed=2)
    ones, others = dict(one.named_parameters()), dict(other.named_parameters())
    for key, value in ones.items():
        is_drawn = value.ndim > 1
        assert torch.equal(value, others[key]) != is_drawn, key


def widths(settings: StackSettings) -> dict[str, float]:
    """The standard deviation of each kind of weight."""
    model = build(replace(settings, d_model=240, heads=4, d_head=60, d_ff=480))
    weights: dict[str, list[torch.Tensor]] = {}
    for module in model.modules():
        if isinstance(module, Attention):
            weights.setdefault("query", []).append(module.query.weight)
            weights.setdefault("key_value", []).append(module.key_value.weight)
            weights.setdefault("output", []).append(module.output.weight)
        elif isinstance(module, FeedForward):
            weights.setdefault("up", []).append(module.up.weight)
            weights.setdefault("down", []).append(module.down.weight)
    weights["token"] = [model.backbone.embedding.token.weight]
    return {name: torch.cat([w.flatten() for w in ws]).std().item() for name, ws in weights.items()}


def test_gpt2_scales_residual_projections_by_depth() -> None:
    soft = 0.02 / math.sqrt(2 * GPT2.layers)
    expected = {"query": 0.02, "key_value": 0.02, "output": soft, "up": 0.02, "down": soft}
    assert widths(GPT2) == pytest.approx(expected | {"token": 0.02}, rel=0.03)


def test_t5_scales_weights_by_the_root_of_the_input_width() -> None:
    expected = {
        "query": (240 * 60) ** -0.5,
        "key_value": 240**-0.5,
        "output": 240**-0.5,
        "up": 240**-0.5,
        "down": 480**-0.5,
        "token": 1.0,
    }
    assert widths(T5) == pytest.approx(expected, rel=0.03)


def test_bert_truncates_weights_at_two_deviations() -> None:
    weight = build(BERT).backbone.embedding.token.weight
    assert weight.abs().max() <= 0.04
    assert weight.std() > 0.016


def test_tied_heads_share_the_embedding() -> None:
    for settings, is_tied in ((BERT, True), (LLAMA, False)):
        model = build(settings)
        assert (model.token_head.weight is model.backbone.embedding.token.weight) == is_tied


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"d_model": 100, "heads": 3},
            "heads: d_model 100 is not divisible by 3 heads; use 2 heads",
        ),
        (
            {"normalise_first": False, "norm_position": "post"},
            "normalise_first: .* requires norm_position",
        ),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Transformer(**settings)


def test_d_head_frees_d_model_from_the_heads() -> None:
    assert Transformer(d_model=100, heads=3, d_head=8).build(10) is not None


def test_decoder_layers_are_set_apart_from_encoder_layers() -> None:
    assert len(T5.build(10).encoder.blocks) == 4
    assert len(T5.build(10).decoder.blocks) == 2
