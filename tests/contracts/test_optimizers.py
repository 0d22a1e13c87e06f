"""Optimizers: what holds for every kind in the folder, and AdamW against its definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from foreword import kinds
from foreword.runs.recipe import load_recipe
from foreword.train import checkpoint
from foreword.train.optimizers.adamw import AdamW
from tests.tiny import TRAINED, build

EVERY = kinds.names("train/optimizers")


def settings(kind: str, **given: Any) -> Any:
    cls = kinds.load("train/optimizers", kind)
    known = cls.__dataclass_fields__
    return cls(**{name: value for name, value in given.items() if name in known})


def model(seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 3))


def step(of: nn.Module, optimizer: Optimizer, seed: int) -> float:
    """One step towards fixed targets; returns the loss before it."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 5, (16,), generator=draw)
    loss = ((of(ids) - ids[:, None] * torch.tensor([0.1, -0.2, 0.3])) ** 2).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.mark.parametrize("kind", EVERY)
def test_it_learns(kind: str) -> None:
    of = model()
    optimizer = settings(kind, lr=1e-2).build(of)
    losses = [step(of, optimizer, seed) for seed in range(100)]
    assert sum(losses[-5:]) < 0.3 * sum(losses[:5])


@pytest.mark.parametrize("kind", EVERY)
def test_it_moves_every_parameter(kind: str) -> None:
    of = model()
    before = [p.detach().clone() for p in of.parameters()]
    step(of, settings(kind, lr=1e-2, decay=0.0).build(of), 1)
    for (name, p), old in zip(of.named_parameters(), before, strict=True):
        assert not torch.equal(p, old), name


@pytest.mark.parametrize("kind", EVERY)
def test_only_matrices_decay(kind: str) -> None:
    of = model()
    with torch.no_grad():
        for p in of.parameters():
            p.fill_(2.0)
    optimizer = settings(kind, lr=0.1, decay=0.5).build(of)
    for p in of.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for name, p in of.named_parameters():
        wanted = 2.0 * (1 - 0.1 * 0.5) if p.ndim >= 2 else 2.0
        torch.testing.assert_close(p.detach(), torch.full_like(p, wanted), msg=name)


U_V = {f"backbone.stack.position.{name}.weight" for name in "uv"}
T5 = {f"backbone.{stack}.position.table.weight" for stack in ("encoder", "decoder")}
# Biases of two dimensions, by recipe.
TABLES = {
    "transformer_xl_tiny": U_V,
    "xlnet_tiny": {*U_V, "backbone.stack.position.s.weight", "backbone.unread.weight"},
    "t5_tiny": T5,
    "ul2_tiny": T5,
}


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("kind", EVERY)
def test_of_every_family_biases_and_norms_do_not_decay_and_all_else_does(
    kind: str, name: str
) -> None:
    of = build(load_recipe(name))
    spared = {
        f"{path}.{own}"
        for path, module in of.named_modules()
        for own, _ in module.named_parameters(recurse=False)
        if type(module).__name__.endswith("Norm") or "bias" in own
    }
    groups = settings(kind, decay=0.5).build(of).param_groups
    decays = {p: group["weight_decay"] > 0 for group in groups for p in group["params"]}
    found = {path for path, parameter in of.named_parameters() if not decays[parameter]}
    assert found == spared | TABLES.get(name, set())
    assert len(decays) == len(list(of.parameters()))


@pytest.mark.parametrize("kind", EVERY)
def test_frozen_parameters_stay(kind: str) -> None:
    of = model()
    of[0].weight.requires_grad_(False)
    before = of[0].weight.clone()
    optimizer = settings(kind, lr=0.1, decay=0.5).build(of)
    step(of, optimizer, 1)
    assert torch.equal(of[0].weight, before)


@pytest.mark.parametrize("kind", EVERY)
def test_stored_and_loaded_it_goes_on_the_same(kind: str, tmp_path: Path) -> None:
    of = model()
    optimizer = settings(kind, lr=1e-2).build(of)
    for seed in range(3):
        step(of, optimizer, seed)
    checkpoint.save(tmp_path / "step", of, optimizer, {})
    other = model(seed=2)
    resumed = settings(kind, lr=1e-2).build(other)
    checkpoint.load_weights(tmp_path / "step", other)
    checkpoint.load_optimizer(tmp_path / "step", other, resumed)
    for seed in range(3, 6):
        step(of, optimizer, seed)
        step(other, resumed, seed)
    for one, two in zip(of.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("kind", EVERY)
def test_a_rate_must_be_positive(kind: str) -> None:
    with pytest.raises(ValueError, match="lr: must be a number above 0"):
        settings(kind, lr=0.0)


def test_adamw_is_as_published() -> None:
    """Loshchilov & Hutter 2019, algorithm 2, in float64."""
    made = AdamW(lr=0.03, beta1=0.8, beta2=0.95, eps=1e-6, decay=0.1)
    of = nn.Linear(3, 2, bias=False)
    optimizer = made.build(of)
    w = of.weight.detach().numpy().astype(np.float64)
    m, v = np.zeros_like(w), np.zeros_like(w)
    draw = np.random.default_rng(1)
    for t in range(1, 6):
        g = draw.normal(size=w.shape)
        of.weight.grad = torch.tensor(g, dtype=torch.float32)
        optimizer.step()
        m = 0.8 * m + 0.2 * g
        v = 0.95 * v + 0.05 * g**2
        mean, square = m / (1 - 0.8**t), v / (1 - 0.95**t)
        w = w - 0.03 * (mean / (np.sqrt(square) + 1e-6) + 0.1 * w)
        np.testing.assert_allclose(of.weight.detach().numpy(), w, rtol=1e-5)
