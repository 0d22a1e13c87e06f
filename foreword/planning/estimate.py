"""The cost of a run, measured before it begins: parameters, memory, operations, time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import torch

from foreword.objectives._contract import Objective
from foreword.planning.memory import (
    MemoryUse,
    memory_counted,
    memory_taken,
    take_step,
)
from foreword.runs.counted import count_step
from foreword.runs.setup import TrainingSetup, compile_blocks
from foreword.runs.sizes import count_parameters
from foreword.train import flops
from foreword.train.budget import Budget
from foreword.train.device import autocast, matmul_flops_per_second, wait
from foreword.train.feed import count_tokens
from foreword.types import Batch, Loss

WARM_STEPS, LEAST_STEPS, MOST_STEPS = 2, 3, 20
TIMED_SECONDS = 1.0  # short steps are timed for so long: a few are at the mercy of the machine
STEP_SECONDS = 2.0  # a step that would take longer is timed on fewer rows


@dataclass(frozen=True)
class Estimate:
    """The cost of a run.

    Attributes:
        parameters: number by part of the model; shared ones count in the first.
        memory: bytes by purpose.
        first_loss: nats per prediction before training; near `chance_loss` where the first
            logits are small, above it where blocks begin as the identity with a tied output layer.
        tokens_per_step: tokens that the model reads, source and target, without padding.
        flops_per_step: floating-point operations, counted.
        seconds_per_step: measured, without evaluations and checkpoints.
        rows_timed: rows of the timed steps; 0 if the model is too large for this machine, and all
            numbers are counted without computing.
        steps: steps of the whole budget.
        epochs: passes over the text in these steps.
    """

    parameters: Mapping[str, int]
    memory: MemoryUse
    first_loss: float
    tokens_per_step: float
    flops_per_step: float
    seconds_per_step: float
    rows_timed: int
    steps: int
    epochs: float


def chance_loss(objective: Objective, vocab: int) -> float:
    """Return the loss of uniform predictions in nats; by default log(vocab)."""
    return objective.chance_loss(vocab)


def estimate(
    setup: TrainingSetup, share: float = 1.0, measured: Estimate | None = None
) -> Estimate:
    """Take a few steps, which change the model, and estimate the cost of a run.

    A long step is measured on fewer rows and scaled up. For a model too large for this machine all
    is counted.

    Args:
        setup: the set-up of training.
        share: share of the text that it holds.
        measured: the estimate of a run that differs in its budget and rates alone, whose steps are
            not taken again.
    """
    recipe = setup.recipe
    costs: Costs
    if measured is not None:
        costs = (
            *(measured.memory, measured.first_loss, measured.tokens_per_step),
            *(measured.flops_per_step, measured.seconds_per_step, measured.rows_timed),
        )
    else:
        is_small = not next(setup.model.parameters()).is_meta
        costs = _measured(setup) if is_small else _counted(setup)
    _, _, tokens, operations, seconds, _ = costs
    epochs_per_step = share * setup.feed.epochs(1)
    budget = Budget.of(recipe.train)
    budget.require_step(operations)
    steps = steps_of(budget, tokens, operations, seconds, epochs_per_step)
    parameters = count_parameters(recipe, setup.vocab)
    return Estimate(parameters, *costs, steps, steps * epochs_per_step)


def combined(stages: Sequence[tuple[float, Estimate]], setup: TrainingSetup) -> Estimate:
    """Return the cost of a run from those of its stages: means over its steps, the most memory.

    Args:
        stages: the share of the budget and the cost of each, as if all of training were like it.
        setup: the run.
    """
    if len(stages) == 1:
        return stages[0][1]
    steps = [share * cost.steps for share, cost in stages]
    costs = [cost for _, cost in stages]

    def mean(value_of: Callable[[Estimate], float]) -> float:
        products = (n * value_of(cost) for n, cost in zip(steps, costs, strict=True))
        return math.fsum(products) / math.fsum(steps)

    total = round(math.fsum(steps))
    return replace(
        costs[0],
        parameters=count_parameters(setup.recipe, setup.vocab),
        memory=max((cost.memory for cost in costs), key=lambda memory: memory.total),
        tokens_per_step=mean(lambda cost: cost.tokens_per_step),
        flops_per_step=mean(lambda cost: cost.flops_per_step),
        seconds_per_step=mean(lambda cost: cost.seconds_per_step),
        steps=total,
        epochs=total * costs[0].epochs / costs[0].steps,
    )


Costs = tuple[MemoryUse, float, float, float, float, int]  # fields of `Estimate`


def _measured(setup: TrainingSetup) -> Costs:
    """Take steps, on fewer rows if one would take too long."""
    recipe, model, loss_fn = setup.recipe, setup.model, setup.loss_fn
    model.train()
    rows = _rows_to_time(setup, loss_fn)
    batches = setup.feed.batches(np.arange(rows))
    scale = recipe.rows_per_step / rows
    operations = sum(flops.count(model, batch, loss_fn) for batch in batches) * scale
    if recipe.train.compile == "on":
        compile_blocks(model)
    first_loss, seconds = _time(setup, batches, loss_fn)
    memory = memory_taken(setup, rows, _activations(setup), loss_fn)
    tokens = sum(map(count_tokens, batches)) * scale
    return memory, first_loss, tokens, operations, seconds, rows


def _activations(setup: TrainingSetup) -> int:
    """Return the bytes that backward needs of a micro-batch."""
    train, is_on_gpu = setup.recipe.train, setup.device.type == "cuda"
    counted = count_step(setup.recipe, setup.dtype, setup.vocab, on_gpu=is_on_gpu)
    fixed, each = (
        part.activations + part.head for part in counted.kept[train.activation_checkpointing]
    )
    return round(fixed + each * train.micro_batch)


def _counted(setup: TrainingSetup) -> Costs:
    """Count a step, at the speed of this machine's matrix products and the loss of chance."""
    recipe = setup.recipe
    counted = count_step(recipe, setup.dtype, setup.vocab)
    tokens = float(sum(map(count_tokens, setup.feed.batches(np.arange(1)))) * recipe.rows_per_step)
    operations = counted.flops_per_row * recipe.rows_per_step
    seconds = operations / matmul_flops_per_second(setup.device, setup.dtype)
    loss = chance_loss(recipe.objective, setup.vocab.size)
    return memory_counted(setup, _activations(setup)), loss, tokens, operations, seconds, 0


def steps_of(
    budget: Budget, tokens: float, operations: float, seconds: float, epochs: float
) -> int:
    """Return the number of steps in a budget, given the cost of each."""
    cost = {
        "steps": 1.0,
        "epochs": epochs,
        "tokens": tokens,
        "flops": operations,
        "hours": seconds / 3600,
    }
    return max(1, math.ceil(budget.amount / cost[budget.unit] - 1e-9))


def _rows_to_time(setup: TrainingSetup, loss_fn: Callable[[Batch], Loss]) -> int:
    """Return the number of rows to time: a micro-batch, or fewer if a step would take too long.

    If possible more than one, so that the constant cost of a step is not scaled up.
    """
    rows, most = 1, setup.recipe.train.micro_batch
    if setup.device.type == "cuda":  # fast, and each size would be compiled
        return most
    _forward_backward(setup, rows, loss_fn)  # the first is slow
    while rows < most and _forward_backward(setup, rows, loss_fn) < STEP_SECONDS / 2:
        rows = min(2 * rows, most)
    setup.model.zero_grad(set_to_none=True)
    return rows


def _forward_backward(setup: TrainingSetup, rows: int, loss_fn: Callable[[Batch], Loss]) -> float:
    """Return the seconds of one forward and backward pass."""
    batch = setup.feed.batch(np.arange(rows), setup.recipe.train.seed).to(setup.device)
    start = time.perf_counter()
    with autocast(setup.device, setup.dtype):
        loss = loss_fn(batch)
    loss.total.backward()  # type: ignore[no-untyped-call]
    wait(setup.device)
    return time.perf_counter() - start


def _time(
    setup: TrainingSetup, batches: Sequence[Batch], loss_fn: Callable[[Batch], Loss]
) -> tuple[float, float]:
    """Return the loss of the first step and the seconds of a full step.

    Forward and backward grow with the rows; the optimizer's update does not, and is timed alone.
    """
    optimizer = setup.recipe.optimizer.build(setup.model)
    losses = [take_step(setup, optimizer, batches, loss_fn) for _ in range(WARM_STEPS)]
    step = _median_seconds(lambda: take_step(setup, optimizer, batches, loss_fn))
    for parameter in setup.model.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def update_weights() -> None:
        optimizer.step()
        wait(setup.device)

    update = _median_seconds(update_weights)
    pieces = setup.recipe.rows_per_step / sum(len(batch.ids) for batch in batches)
    optimizer.zero_grad(set_to_none=True)
    return losses[0], max(step - update, 0.0) * pieces + update


def _median_seconds(work: Callable[[], object]) -> float:
    """Return the median time of some work, repeated for a while."""
    times: list[float] = []
    while len(times) < LEAST_STEPS or (sum(times) < TIMED_SECONDS and len(times) < MOST_STEPS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times)
