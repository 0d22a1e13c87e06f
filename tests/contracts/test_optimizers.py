"""Optimizers: what holds for every kind in the folder, and AdamW against its definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from foreword.runs.recipe import load_recipe
from foreword.settings import kinds
from foreword.testing.training import promised
from foreword.train.optimizers._contract import OptimizerSettings
from foreword.train.optimizers.adamw import AdamW
from tests.tiny import TRAINED, build

FOLDER = "train/optimizers"
EVERY = kinds.names(FOLDER)


def settings(kind: str, **given: Any) -> Any:
    cls = kinds.load("train/optimizers", kind)
    known = cls.__dataclass_fields__
    return cls(**{name: value for name, value in given.items() if name in known})


@pytest.mark.parametrize(
    ("kind", "check"),
    [(kind, check) for kind in EVERY for check in promised(kinds.load(FOLDER, kind)())],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_every_optimizer_keeps_the_contract(
    check: Callable[[OptimizerSettings], None], kind: str
) -> None:
    check(kinds.load("train/optimizers", kind)())


@pytest.mark.parametrize("recipe", ["steps_decoder_tiny", "modern_decoder_tiny"])
def test_embeddings_and_output_layers_have_a_rate_of_their_own(recipe: str) -> None:
    model = build(load_recipe(recipe, ["tokenizer.vocab=400", "model.tied=false"]))
    made = AdamW(lr=0.1, embeddings=0.3).build_for(model, {next(model.parameters()): 0.5})
    rates = {p: group["lr"] for group in made.param_groups for p in group["params"]}
    own = {name: round(rates[p], 6) for name, p in model.named_parameters() if rates[p] < 0.1}
    assert own.pop("backbone.embedding.token.weight") == 0.015
    pairs = {"backbone.embedding.bigrams.weight"} if recipe.startswith("steps") else set()
    assert own == dict.fromkeys({"heads.token.weight", *pairs}, 0.03)


U_V = {f"backbone.stack.position.{name}.weight" for name in "uv"}
T5 = {f"backbone.{stack}.position.table.weight" for stack in ("encoder", "decoder")}
# Biases of two dimensions, by recipe.
TABLES = {
    "transformer_xl_tiny": U_V,
    "xlnet_tiny": {*U_V, "backbone.stack.position.s.weight", "backbone.unread.weight"},
    "steps_decoder_tiny": {"backbone.stack.shortcuts.0.weight"},
    "t5_tiny": T5,
    "ul2_tiny": T5,
}


@pytest.mark.product
@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("kind", EVERY)
def test_only_biases_and_norms_are_spared_from_weight_decay(kind: str, name: str) -> None:
    model = build(load_recipe(name))
    spared = {
        f"{path}.{own}"
        for path, module in model.named_modules()
        for own, _ in module.named_parameters(recurse=False)
        if type(module).__name__.endswith("Norm") or "bias" in own or own == "log_rate"
    }
    groups = settings(kind, decay=0.5).build(model).param_groups
    decays = {p: group["weight_decay"] > 0 for group in groups for p in group["params"]}
    without_decay = {path for path, parameter in model.named_parameters() if not decays[parameter]}
    assert without_decay == spared | TABLES.get(name, set())
    assert len(decays) == len(list(model.parameters()))


def test_bert_adam_is_adam_without_the_correction_of_its_first_steps() -> None:
    """Step t of AdamW, corrected, has the learning rate of the other times its correction."""
    grads = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(1))
    for t in range(1, 6):
        biased, corrected = nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False)
        corrected.load_state_dict(biased.state_dict())
        rate = 0.01 * (1 - 0.9**t) / (1 - 0.999**t) ** 0.5
        ours = settings("bert_adam", lr=0.01, eps=1e-20, decay=0.0).build(biased)
        theirs = AdamW(lr=0.01, beta2=0.999, eps=1e-20, decay=0.0).build(corrected)
        for n, grad in enumerate(grads[:t], 1):
            if n == t:
                corrected.load_state_dict(biased.state_dict())
                theirs.param_groups[0]["lr"] = rate
            biased.weight.grad, corrected.weight.grad = grad.clone(), grad.clone()
            ours.step()
            theirs.step()
        torch.testing.assert_close(biased.weight, corrected.weight)
    assert rate > 0.03


def test_adamw_equals_the_published_algorithm() -> None:
    """Loshchilov & Hutter 2019, algorithm 2, in float64."""
    made = AdamW(lr=0.03, beta1=0.8, beta2=0.95, eps=1e-6, decay=0.1)
    torch.manual_seed(1)  # no weight near 0, whose relative error would be large
    layer = nn.Linear(3, 2, bias=False)
    optimizer = made.build(layer)
    w = layer.weight.detach().numpy().astype(np.float64)
    m, v = np.zeros_like(w), np.zeros_like(w)
    draw = np.random.default_rng(1)
    for t in range(1, 6):
        g = draw.normal(size=w.shape)
        layer.weight.grad = torch.tensor(g, dtype=torch.float32)
        optimizer.step()
        m = 0.8 * m + 0.2 * g
        v = 0.95 * v + 0.05 * g**2
        mean, square = m / (1 - 0.8**t), v / (1 - 0.95**t)
        w = w - 0.03 * (mean / (np.sqrt(square) + 1e-6) + 0.1 * w)
        np.testing.assert_allclose(layer.weight.detach().numpy(), w, rtol=1e-5)
