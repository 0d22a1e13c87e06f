"""The training loop of every family, of pretraining and fine-tuning, on any device."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from torch import nn
from torch.optim import Optimizer

from foreword.data.rng import RowRng
from foreword.errors import NotFiniteError
from foreword.train import processes
from foreword.train.average import WeightAverage
from foreword.train.budget import Budget, Progress
from foreword.train.finite import require_finite
from foreword.train.hooks import Hook
from foreword.train.processes import Memory
from foreword.train.schedules._contract import Schedule
from foreword.train.step import StepOptions, StepResult, train_step
from foreword.types import Loss

STOPPING = "stopping: the step is finished and saved first"


class Batches(Protocol):
    """The batches to train on: a pure function of the step's number."""

    def ahead(self, step: int) -> Generator[list[Any]]:
        """Yield the micro-batches of `step`, `step` + 1, ..."""

    def epochs(self, steps: int) -> float:
        """Return the number of times the data has been read after `steps` steps."""

    def count_tokens(self, batches: Sequence[Any]) -> int:
        """Return the tokens that the model reads in these micro-batches."""


@dataclass
class TrainingState:
    """The counters of a training; stored in every checkpoint.

    Attributes:
        spent: the part of the budget that is used.
        before: the part that was used before the first step.
        skipped: steps whose loss or gradient was not finite, or without predictions.
        skipped_in_row: the number of latest steps in a row that were not finite.
        best_loss: lowest held-out loss.
        best: name of the checkpoint that had it.
        averaged: number of steps whose weights a checkpoint's are the average of; 0 if they are
            those of its last step.
        begins: the steps at which the segments of a recipe that changes began.
    """

    spent: Progress = field(default_factory=Progress)
    before: Progress = field(default_factory=Progress)
    skipped: int = 0
    skipped_in_row: int = 0
    best_loss: float | None = None
    best: str | None = None
    averaged: int = 0
    begins: list[int] = field(default_factory=list)

    def dump(self) -> dict[str, Any]:
        """Return the state as JSON."""
        state = {"step": self.spent.steps, **asdict(self)}
        return {key: value for key, value in state.items() if key != "begins" or value}

    @classmethod
    def load(cls, state: dict[str, Any]) -> TrainingState:
        """Return the state that `dump` wrote."""
        values = {k: v for k, v in state.items() if k not in ("step", "spent", "before")}
        before = Progress(**state.get("before", {}))  # none in older checkpoints
        return cls(spent=Progress(**state["spent"]), before=before, **values)


class Loop:
    """Trains a model until its budget is spent, calling hooks between steps.

    Args:
        model: the parameters to train.
        loss_fn: the sum and count of a micro-batch.
        batches: the data to train on.
        optimizer: over the model's parameters; the learning rate of each group is its peak.
        schedule: the schedule of the learning rate.
        budget: when to stop.
        options: the settings of a step.
        hooks: called after the steps at which they are due, in this order.
        note: receives messages for the user.
        warn: receives those that are shown even where others are not wanted.

    Attributes:
        state: the counters of the training.
        average: the mean of the last weights, which the model has while hooks begin, run and end.
        memory: what each micro-batch left for the next step; see `foreword.types.Hidden`.
        last: the result of the last step.
        lr_factor: the schedule's factor of all learning rates in the last step.
        step_seconds: spent on steps so far, waiting for data included, in this process.
        last_finite_step: the last step whose weights gave a finite loss.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[[Any], Loss],
        batches: Batches,
        optimizer: Optimizer,
        schedule: Schedule,
        budget: Budget,
        options: StepOptions,
        hooks: Sequence[Hook] = (),
        note: Callable[[str], None] = lambda text: None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.model, self.loss_fn, self.batches = model, loss_fn, batches
        self.optimizer, self.schedule = optimizer, schedule
        self.budget, self.options, self.hooks = budget, options, hooks
        self.note, self.warn = note, warn
        for group in self.optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        self.state = TrainingState()
        self.average = WeightAverage(model, options.average)
        self.memory: tuple[Memory, ...] = ()
        self.last: StepResult | None = None
        self.lr_factor = 0.0
        self.step_seconds = 0.0
        self.last_finite_step = -1
        self._stop = threading.Event()

    @property
    def progress(self) -> float:
        """The share of the budget that is spent, 0 to 1."""
        return self.budget.progress(self.state.spent)

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Stop after the current step."""
        self._stop.set()

    def elapsed(self) -> float:
        """Return the seconds spent, earlier runs and first embeddings too, by the first process."""
        return processes.of_first(time.monotonic() - self._began)

    def train(self) -> bool:
        """Take steps until the budget is spent.

        Returns:
            True when the budget is spent, False when `stop` was called.

        Raises:
            NotFiniteError: the weights, several steps in a row, or all steps were not finite.
        """
        spent = self.state.spent
        self._began = time.monotonic() - spent.seconds
        self.model.train()
        with self.average.in_place():
            for hook in self.hooks:
                hook.begin(self)
        ahead = self.batches.ahead(spent.steps)
        try:
            while self.progress < 1 and not self._ends_early():
                before = self.progress
                self._step(ahead)
                for hook in self.hooks:
                    hook.after_step(self)
                    if hook.is_due(before, self.progress, self):
                        with self.average.in_place():
                            hook.run(self)
        finally:
            ahead.close()
        with self.average.in_place():
            for hook in self.hooks:
                hook.end(self)
        return self.progress >= 1

    def _ends_early(self) -> bool:
        """Return whether `stop` was called, in any of the processes."""
        if processes.count() == 1:
            return self.is_stopping
        (requests,) = processes.totals(self.is_stopping)
        if requests:
            self.stop()
            self.warn(STOPPING)
        return bool(requests)

    def _step(self, ahead: Generator[list[Any]]) -> None:
        """Take one step and update the counters."""
        start, spent = time.monotonic(), self.state.spent
        batches = next(ahead)

        # Each parameter group has its own peak rate; one schedule scales them all.
        progress = self.budget.progress_of_steps(spent, self.state.before)
        total_steps = self.budget.total_steps(spent.steps, progress)
        self.lr_factor = self.schedule.factor(progress, spent.steps, total_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * self.lr_factor

        # Pass on the memory that the previous step's rows left.
        if self.memory:
            pairs = zip(batches, self.memory, strict=True)
            batches = [replace(batch, memory=memory) for batch, memory in pairs]

        result = self.last = train_step(
            self.model,
            self.optimizer,
            batches,
            self.loss_fn,
            dropout_seeds(self.options.dropout_seed, spent.steps, len(batches)),
            self.options,
        )
        has_memory = any(memory is not None for memory in result.memory)
        if has_memory and (result.is_finite or not result.count):
            self.memory = result.memory

        spent.steps += 1
        spent.tokens += int(*processes.totals(self.batches.count_tokens(batches)))
        spent.epochs = self.batches.epochs(spent.steps)
        spent.flops += self.options.flops
        spent.seconds = self.elapsed()
        if result.is_finite:
            self._average()
        self.step_seconds += time.monotonic() - start
        self._check(result)

    def _average(self) -> None:
        """Add the weights after a step to their mean, if it is one of the last."""
        state = self.state
        before, state.averaged = state.averaged, self.average.update(self.progress, state.averaged)
        if state.averaged and not before:
            self.note(f"step {state.spent.steps:,}: from here on the model is the weights' average")

    def _check(self, result: StepResult) -> None:
        """Count a skipped step; stop a training that cannot recover."""
        state = self.state
        if result.is_finite:
            state.skipped_in_row = 0
            self.last_finite_step = state.spent.steps - 1
            return
        state.skipped += 1
        why = "nothing to predict"
        if result.count:
            why = f"loss {result.loss:.4g}, gradient norm {result.grad_norm:.4g}: not finite"
        self.warn(f"step {state.spent.steps}: {why}, the step is skipped ({state.skipped} so far)")
        if result.count:  # a step without predictions does not indicate bad weights
            state.skipped_in_row += 1
            require_finite(dict(self.model.named_parameters()))
            if state.skipped_in_row >= self.options.max_nonfinite_steps:
                raise NotFiniteError(f"{state.skipped_in_row} steps in a row were not finite")
        if self.progress >= 1 and state.skipped == state.spent.steps:
            raise NotFiniteError(f"none of the {state.skipped} steps was finite")


def dropout_seeds(seed: int, step: int, count: int) -> list[int]:
    """Return a seed for each micro-batch of a step that is this process's.

    Micro-batches are counted over all processes, which have as many each.
    """
    first = processes.rank() * count
    words = RowRng(seed, np.array([step])).bits(first + count)[0, first:]
    return [int(word >> np.uint64(1)) for word in words]
