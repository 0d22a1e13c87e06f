"""The contracts of optimizers and schedules: a function for each promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import nn
from torch.optim import Optimizer

from foreword.train import checkpoint
from foreword.train.optimizers._contract import OptimizerSettings
from foreword.train.schedules._contract import Schedule

TOTAL = 1000  # steps of a run


def check_optimizer(settings: OptimizerSettings) -> None:
    """Check all that an optimizer promises.

    Args:
        settings: the optimizer's settings, a frozen dataclass; the checks set `lr` and `decay` if
            it has them.

    Raises:
        AssertionError: a promise is broken.
    """
    assert is_dataclass(type(settings)), "the settings of an optimizer are a frozen dataclass"
    for check in promised(settings):
        check(settings)


def promised(settings: OptimizerSettings) -> list[Callable[[OptimizerSettings], None]]:
    """Return the checks of what the optimizer promises: of decay if there is a setting for it."""
    has_decay = "decay" in {field.name for field in fields(cast(Any, settings))}
    return [c for c in OPTIMIZER_CHECKS if has_decay or c is not check_only_matrices_decay]


def check_schedule(schedule: Schedule) -> None:
    """Check all that a schedule promises.

    Raises:
        AssertionError: a promise is broken.
    """
    for check in SCHEDULE_CHECKS:
        check(schedule)


def small_model(seed: int = 1) -> nn.Sequential:
    """Return a model with a table, a norm, a matrix and biases."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 3))


def train_step(model: nn.Module, optimizer: Optimizer, seed: int) -> float:
    """Take one step towards fixed targets; return the loss before it."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 5, (16,), generator=generator)
    loss = ((model(ids) - ids[:, None] * torch.tensor([0.1, -0.2, 0.3])) ** 2).sum()
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()
    return float(loss.item())


def _with(settings: OptimizerSettings, **values: float) -> Any:
    names = {field.name for field in fields(cast(Any, settings))}
    settable = {name: value for name, value in values.items() if name in names}
    return replace(cast(Any, settings), **settable)


def check_it_learns(settings: OptimizerSettings) -> None:
    """Check that a hundred steps lower the loss far."""
    model = small_model()
    optimizer = _with(settings, lr=1e-2).build(model)
    losses = [train_step(model, optimizer, seed) for seed in range(100)]
    assert sum(losses[-5:]) < 0.3 * sum(losses[:5]), "the loss has not fallen"


def check_it_moves_every_parameter(settings: OptimizerSettings) -> None:
    """Check that one step changes each parameter."""
    model = small_model()
    before = [p.detach().clone() for p in model.parameters()]
    train_step(model, _with(settings, lr=1e-2, decay=0.0).build(model), 1)
    for (name, p), old in zip(model.named_parameters(), before, strict=True):
        assert not torch.equal(p, old), f"{name} has not moved"


def check_only_matrices_decay(settings: OptimizerSettings) -> None:
    """Check that weight decay spares biases and norms."""
    model = small_model()
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(2.0)
    optimizer = _with(settings, lr=0.1, decay=0.5).build(model)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for name, p in model.named_parameters():
        expected = 2.0 * (1 - 0.1 * 0.5) if p.ndim >= 2 else 2.0
        torch.testing.assert_close(p.detach(), torch.full_like(p, expected), msg=name)


def check_embeddings_have_a_rate_of_their_own(settings: OptimizerSettings) -> None:
    """Check that the factor of the rate of embeddings is that of their steps alone."""
    model = small_model()
    own = _with(settings, lr=1e-2, embeddings=0.5).build_for(model)
    rates = {p: group["lr"] for group in own.param_groups for p in group["params"]}
    table, *others = model.parameters()
    expected = _with(settings, lr=1e-2).build(model).param_groups
    shared = {p: group["lr"] for group in expected for p in group["params"]}
    assert rates[table] == 0.5 * shared[table], "embeddings have not the rate of their own"
    assert all(rates[p] == shared[p] for p in others), "others have the rate of embeddings"


def check_frozen_parameters_stay(settings: OptimizerSettings) -> None:
    """Check that a parameter without gradient stays unchanged."""
    model = small_model()
    table = cast(nn.Embedding, model[0]).weight.requires_grad_(False)
    before = table.clone()
    train_step(model, _with(settings, lr=0.1, decay=0.5).build(model), 1)
    assert torch.equal(table, before), "a frozen parameter has moved"


def check_stored_and_loaded_it_goes_on_the_same(settings: OptimizerSettings) -> None:
    """Check that a run resumed from a checkpoint takes the same steps, bit for bit."""
    model = small_model()
    optimizer = _with(settings, lr=1e-2).build(model)
    for seed in range(3):
        train_step(model, optimizer, seed)
    other = small_model(seed=2)
    resumed = _with(settings, lr=1e-2).build(other)
    with TemporaryDirectory() as folder:
        step = Path(folder) / "step"
        checkpoint.save(step, model, optimizer, {})
        checkpoint.load_weights(step, other)
        checkpoint.load_optimizer(step, other, resumed)
    for seed in range(3, 6):
        train_step(model, optimizer, seed)
        train_step(other, resumed, seed)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two), "a resumed run takes other steps"


def factors(schedule: Schedule) -> list[float]:
    """Return the factor at each step of a run of `TOTAL` steps."""
    return [schedule.factor(step / TOTAL, step, TOTAL) for step in range(TOTAL)]


def check_the_factor_is_within_zero_and_one(schedule: Schedule) -> None:
    """Check that the learning rate is never above its peak, and never 0 or below."""
    values = factors(schedule)
    assert min(values) > 0, f"the factor falls to {min(values)}"
    assert max(values) <= 1 + 1e-12, f"the factor rises to {max(values)}"


def check_a_resumed_run_has_the_same_rate(schedule: Schedule) -> None:
    """Check that the factor depends on the progress alone, not on earlier calls."""
    backwards = [schedule.factor(s / TOTAL, s, TOTAL) for s in reversed(range(TOTAL))]
    assert backwards[::-1] == factors(schedule), "the factor depends on earlier calls"


OPTIMIZER_CHECKS: tuple[Callable[[OptimizerSettings], None], ...] = (
    check_it_learns,
    check_it_moves_every_parameter,
    check_only_matrices_decay,
    check_embeddings_have_a_rate_of_their_own,
    check_frozen_parameters_stay,
    check_stored_and_loaded_it_goes_on_the_same,
)
SCHEDULE_CHECKS: tuple[Callable[[Schedule], None], ...] = (
    check_the_factor_is_within_zero_and_one,
    check_a_resumed_run_has_the_same_rate,
)
