"""The memory of a run, part by part, measured on a few of its steps.

It is not added up from tensors, which are at most half of a process's memory: libraries take 400
MB, and the heap of each worker's thread keeps what was freed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
from torch.optim import Optimizer

from foreword.planning.resident import Peak
from foreword.runs.recipe import Recipe
from foreword.runs.setup import TrainingSetup
from foreword.runs.sizes import count_parameters, count_state, memory_of
from foreword.train import flops
from foreword.train.device import wait
from foreword.train.feed import DEPTH, HELDOUT_SEED
from foreword.train.step import StepOptions, evaluate, train_step
from foreword.train.workers import accumulate_on
from foreword.types import Batch, Loss

PROGRAM = 400_000_000  # about what Python, torch and libraries take; used if not measured
STEPS, ROUNDS = 3, 2  # a round is steps and an evaluation; further ones add little memory
STEPS_OF_ROWS = DEPTH + 2  # those prepared ahead, the current one, the one in preparation


@dataclass(frozen=True)
class MemoryUse:
    """Bytes that training holds at its peak; on a CPU, of the process's resident set.

    Attributes:
        program: Python, torch and other libraries, the tokenizer, the pages of the token shards
            that were read; on a GPU, its context.
        rows: the rows of steps made ahead.
        weights: the model's weights, in float32.
        gradients: the gradients of each worker; of several workers once more where they have more
            than a micro-batch each.
        optimizer: the optimizer's state after a step.
        average: the second weights of a run that averages them.
        activations: what backward needs of one micro-batch.
        allocator: the rest, measured over a few steps: temporary copies, and freed memory kept for
            the next step.
        available: memory of the device.
    """

    program: int
    rows: int
    weights: int
    gradients: int
    optimizer: int
    average: int
    activations: int
    allocator: int
    available: int

    @property
    def parts(self) -> dict[str, int]:
        """Bytes by part."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "available"}

    @property
    def total(self) -> int:
        """Bytes of all parts together."""
        return sum(self.parts.values())


def memory_counted(setup: TrainingSetup, activations: int) -> MemoryUse:
    """Return the memory of a run, of which nothing is measured.

    Args:
        setup: the set-up of training; its model may be without weights.
        activations: bytes of a micro-batch.
    """
    recipe = setup.recipe
    weights = 4 * sum(count_parameters(recipe, setup.vocab).values())
    rows = STEPS_OF_ROWS * recipe.rows_per_step
    return MemoryUse(
        program=PROGRAM,
        rows=rows * nbytes(setup.feed.batch(np.arange(1), recipe.train.seed)),
        weights=weights,
        gradients=weights * gradient_copies(recipe),
        optimizer=4 * count_state(recipe, setup.vocab),
        average=weights if recipe.train.average else 0,
        activations=activations,
        allocator=0,
        available=memory_of(setup.device),
    )


def memory_taken(
    setup: TrainingSetup, rows: int, activations: int, loss_fn: Callable[[Batch], Loss]
) -> MemoryUse:
    """Measure the memory of a run on a few steps of a micro-batch, or of parts of a large one.

    Args:
        setup: the set-up of training; nothing else holds an optimizer of its model.
        rows: rows whose step does not take too long.
        activations: bytes of a micro-batch.
        loss_fn: returns the sum and count of a batch.
    """
    train, counted = setup.recipe.train, memory_counted(setup, activations)
    # Peaks at one or two numbers of rows, and their memory besides weights and state.
    most = min(train.micro_batch, max(rows, 2 * train.threads))
    if train.micro_batch <= 2 * most:  # two smaller ones would take as long and be less exact
        most = train.micro_batch
    counts = [most] if most == train.micro_batch else [most // 2, most]
    peaks = [_peak(setup, count, loss_fn) for count in counts]
    start = peaks[-1].start
    program, others = PROGRAM, [activations]
    if start is not None:
        program = start - counted.weights
        others = [
            peak.rise - counted.optimizer - counted.weights * min(train.threads, count)
            for peak, count in zip(peaks, counts, strict=True)
        ]
    # Extrapolated to a whole micro-batch.
    all_others = extrapolate(others, counts, train.micro_batch)
    activations = min(activations, max(all_others, 0))  # not all are held at the peak
    return replace(
        counted,
        program=max(program, 0),
        rows=counted.rows if setup.device.type == "cpu" else 0,
        activations=activations,
        allocator=max(0, all_others - activations),
    )


def gradient_copies(recipe: Recipe) -> int:
    """Return how many gradients of all weights one process holds at once.

    One worker adds to them in place; of several, each has its own, beside their sum.
    """
    train = recipe.train
    workers = max(1, train.threads)
    return workers + (workers > 1 and recipe.rows_per_step > train.micro_batch)


def extrapolate(measured: Sequence[int], counts: Sequence[int], rows: int) -> int:
    """Return the bytes of a micro-batch of `rows`, by the line through one or two smaller ones.

    The slope is at least 0 and at most the mean per row, since some memory does not depend on the
    rows: a slope beyond these is noise, which extrapolation would amplify.

    Args:
        measured: bytes at each of `counts`.
        counts: rows, ascending.
        rows: at least the last of them.
    """
    slope = (measured[-1] - measured[0]) / max(1, counts[-1] - counts[0])
    per_row = min(max(slope, 0.0), max(measured[-1], 0) / counts[-1])
    return round(measured[-1] + per_row * (rows - counts[-1]))


def _peak(setup: TrainingSetup, rows: int, loss_fn: Callable[[Batch], Loss]) -> Peak:
    """Measure the peak of a run with this many rows at once: count, steps, an evaluation.

    On a CPU the steps run in other threads, which reuse little of the memory of counting FLOPs.
    """
    batches, heldout = setup.feed.batches(np.arange(rows)), []
    if setup.heldout is not None:
        first = np.arange(min(rows, setup.heldout.micro_batch))
        heldout = [setup.heldout.batch(first, HELDOUT_SEED)] * 2
    with Peak(setup.device) as peak:
        flops.count(setup.model, batches[0], loss_fn)
        optimizer = setup.recipe.optimizer.build(setup.model)
        for _ in range(ROUNDS):
            for _ in range(STEPS):
                take_step(setup, optimizer, batches, loss_fn)
            evaluate(setup.model, heldout, loss_fn, setup.dtype)
    return peak


def take_step(
    setup: TrainingSetup,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    loss_fn: Callable[[Batch], Loss],
) -> float:
    """Take a training step on these rows and return its loss."""
    train = setup.recipe.train
    result = train_step(
        setup.model,
        optimizer,
        batches,
        loss_fn,
        range(train.seed, train.seed + len(batches)),
        StepOptions(train.clip, setup.dtype, accumulate=accumulate_on(train.threads)),
    )
    wait(setup.device)
    return result.loss


def nbytes(record: Any) -> int:
    """Return the bytes of the arrays in a record, nested ones included, each array once."""
    sizes: dict[int, int] = {}

    def visit(value: Any) -> None:
        if isinstance(value, np.ndarray):
            sizes[id(value)] = value.nbytes
        elif isinstance(value, tuple):
            for item in value:
                visit(item)
        elif is_dataclass(value):
            for f in fields(value):
                visit(getattr(value, f.name))

    visit(record)
    return sum(sizes.values())
