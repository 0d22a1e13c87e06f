"""The one loop: any family, any device, from any checkpoint to the end of the budget."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import numpy as np
import torch

from foreword.data.rng import RowRng
from foreword.errors import NotFiniteError, TrainingStoppedError, UserError
from foreword.nn.model import Model
from foreword.text.tokenizer import Tokenizer
from foreword.train import checkpoint, flops, log
from foreword.train.budget import Budget, Spent
from foreword.train.device import matmul_flops_per_second
from foreword.train.feed import count_tokens
from foreword.train.finite import require_finite, stopped
from foreword.train.measure import heldout_record, measure_rows
from foreword.train.ready import Ready
from foreword.train.recipe import Recipe
from foreword.train.step import Carried, StepResult, take
from foreword.types import Batch, Rows

RECORDS = 400  # train records that a whole run writes to its log
COUNTED_ROWS = 8  # rows of which FLOPs are counted on a GPU
CHECKPOINT_SECONDS = 600.0  # a long run is never further from its last checkpoint than this

# What a model makes of some held-out rows: `{"prompt": ..., "text": ...}` each.
Samples = Callable[[Model, Recipe, Tokenizer, Rows, torch.device], list[dict[str, str]]]


class Watcher(Protocol):
    """Who looks on: the command line's progress bar, a notebook, nobody."""

    def note(self, text: str) -> None:
        """A line worth reading."""

    def record(self, record: dict[str, Any], progress: float) -> None:
        """What was just appended to `metrics.jsonl`, and the share of the budget spent."""

    def samples(self) -> list[dict[str, str]]:
        """What the model says now: `{"prompt": ..., "text": ...}` each."""


@dataclass
class Progress:
    """Where a run stands; stored in every checkpoint.

    Attributes:
        spent: of the budget.
        skipped: steps whose loss or gradient was not finite.
        skipped_in_row: of these, the last ones.
        best_loss: lowest held-out loss.
        best: name of the checkpoint that had it.
    """

    spent: Spent = field(default_factory=Spent)
    skipped: int = 0
    skipped_in_row: int = 0
    best_loss: float | None = None
    best: str | None = None

    def dump(self) -> dict[str, Any]:
        """As JSON."""
        return {"step": self.spent.steps, **asdict(self)}

    @classmethod
    def load(cls, state: dict[str, Any]) -> Progress:
        """From JSON."""
        values = {k: v for k, v in state.items() if k not in ("step", "spent")}
        return cls(spent=Spent(**state["spent"]), **values)


class Loop:
    """Trains a model until its budget is spent, logging, evaluating and saving on the way.

    Args:
        run: the run folder.
        ready: what there is to train, with which text.
        bytes_per_token: of the held-out text, for bits per byte.
        watcher: who looks on.
    """

    def __init__(self, run: Path, ready: Ready, bytes_per_token: float, watcher: Watcher) -> None:
        self.run, self.bytes_per_token, self.watcher = run, bytes_per_token, watcher
        self.recipe, self.model, self.feed = ready.recipe, ready.model, ready.feed
        self.heldout, self.device, self.dtype = ready.heldout, ready.device, ready.dtype
        self.optimizer = self.recipe.optimizer.build(self.model)
        self.loss_of = partial(self.recipe.objective.loss, self.model)
        self.budget = Budget.of(self.recipe.train)
        self.progress = Progress()
        self._stop = threading.Event()
        self._saved_step = -1
        self._proven_step = -1  # the last step whose weights gave a finite loss
        self._resumed_step: int | None = None
        self._is_due = False  # for a checkpoint
        self._carried: tuple[Carried, ...] = ()

    def resume(self, folder: Path) -> None:
        """Puts weights, optimizer and progress back to a checkpoint."""
        checkpoint.load_weights(folder, self.model)
        checkpoint.load_optimizer(folder, self.model, self.optimizer)
        self.progress = Progress.load(checkpoint.read_state(folder))
        self._carried = checkpoint.load_carried(folder, self.device)
        self._saved_step = self._proven_step = self._resumed_step = self.progress.spent.steps

    def train(self) -> bool:
        """Runs to the end of the budget.

        Returns:
            True when the budget is spent, False when a signal asked to stop; either way the last
            step is in a checkpoint.

        Raises:
            TrainingStoppedError: several steps in a row were not finite.
            UserError: the disk is full, or the memory of the device.
        """
        spent = self.progress.spent
        self._began = time.monotonic() - spent.seconds
        self._peak = matmul_flops_per_second(self.device, self.dtype)
        self._step_flops = self._count_flops()
        self._saved_at = time.monotonic()
        self._window = [time.monotonic(), float(spent.tokens), spent.flops]
        self.model.train()
        batches = self.feed.ahead(spent.steps)
        try:
            with self._signals():
                while self.budget.progress(spent) < 1 and not self._stop.is_set():
                    self._step(next(batches))
                self._save()
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"the {self.device.type}'s memory ran out; use --set train.micro_batch="
                f"{max(1, self.feed.micro_batch // 2)} or less"
            ) from error
        finally:
            batches.close()
        return self.budget.progress(spent) >= 1

    def _count_flops(self) -> float:
        # Uncompiled and in fp32 they take more memory than training does, which must not end here.
        most = COUNTED_ROWS if self.device.type == "cuda" else self.recipe.rows_per_step
        first = self.feed.batches(np.arange(min(most, self.recipe.rows_per_step)))
        return float(sum(flops.count(self.model, batch, self.loss_of) for batch in first[:1])) * (
            self.recipe.rows_per_step / len(first[0].ids)
        )

    def _step(self, batches: list[Batch]) -> None:
        spent, step = self.progress.spent, self.progress.spent.steps
        before = self.budget.progress(spent)
        factor = self.recipe.schedule.factor(before, step, self.budget.total_steps(spent))
        lr = self.recipe.optimizer.lr * factor
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        if self._carried:
            pairs = zip(batches, self._carried, strict=True)
            batches = [replace(batch, carried=carried) for batch, carried in pairs]
        result = take(
            self.model,
            self.optimizer,
            batches,
            self.loss_of,
            clip=self.recipe.train.clip,
            dtype=self.dtype,
            seeds=self._dropout_seeds(step, len(batches)),
            workers=self.recipe.train.workers,
        )
        spent.steps += 1
        spent.tokens += sum(map(count_tokens, batches))
        spent.epochs = self.feed.epochs(spent.steps)
        spent.flops += self._step_flops
        spent.seconds = time.monotonic() - self._began
        self._check(result)
        if result.is_finite and any(carried is not None for carried in result.carried):
            self._carried = result.carried
        after = self.budget.progress(spent)
        if _passes(before, after, RECORDS) or step == 0:
            self._log(result, lr, after)
        if _passes(before, after, self.recipe.train.evaluations) or after >= 1:
            self._evaluate(after)
        is_late = time.monotonic() - self._saved_at > CHECKPOINT_SECONDS
        if _passes(before, after, self.recipe.train.checkpoints) or is_late:
            self._is_due = True
        if self._is_due and result.is_finite:  # what was skipped changed nothing
            self._save()

    def _dropout_seeds(self, step: int, count: int) -> list[int]:
        numbers = RowRng(self.recipe.train.seed ^ 0xD0, torch.arange(step, step + 1).numpy())
        return [int(word >> 1) for word in numbers.bits(count)[0]]

    def _check(self, result: StepResult) -> None:
        progress = self.progress
        if result.is_finite:
            progress.skipped_in_row = 0
            self._proven_step = progress.spent.steps - 1
            return
        progress.skipped += 1
        progress.skipped_in_row += 1
        self.watcher.note(
            f"step {progress.spent.steps}: loss {result.loss:.4g}, gradient norm "
            f"{result.grad_norm:.4g}: not finite, the step is skipped ({progress.skipped} so far)"
        )
        try:
            require_finite(dict(self.model.named_parameters()))
        except NotFiniteError as error:
            raise self._stopped(str(error)) from error
        if progress.skipped_in_row >= self.recipe.train.patience:
            raise self._stopped(f"{progress.skipped_in_row} steps in a row were not finite")

    def _stopped(self, why: str) -> TrainingStoppedError:
        """Return the error that ends the run; a checkpoint that gave no finite loss is removed."""
        good = checkpoint.back_to(self.run, self._proven_step)
        why = f"step {self.progress.spent.steps}: {why}"
        if good is None and (left := checkpoint.all_in(self.run)):
            return TrainingStoppedError(
                f"{why}; the only checkpoint, {left[-1]}, gave no finite loss: begin a new run "
                f"with a lower optimizer.lr than {self.recipe.optimizer.lr:g}"
            )
        has_failed_at_once = self._proven_step == self._resumed_step
        return stopped(self.run, self.recipe, why, good, has_failed_at_once=has_failed_at_once)

    def _log(self, result: StepResult, lr: float, progress: float) -> None:
        spent, now = self.progress.spent, time.monotonic()
        seconds = max(now - self._window[0], 1e-9)
        rate = (spent.flops - self._window[2]) / seconds
        record = {
            "kind": "train",
            "step": spent.steps,
            "loss": result.loss,
            "lr": lr,
            "grad_norm": result.grad_norm,
            "tokens": spent.tokens,
            "flops": spent.flops,
            "seconds": round(spent.seconds, 3),
            "tokens_per_second": (spent.tokens - self._window[1]) / seconds,
            "share_of_matmul": rate / self._peak,
            "skipped": self.progress.skipped,
            **result.parts,
        }
        self._window = [now, float(spent.tokens), spent.flops]
        self._write(record, progress)

    def _write(self, record: dict[str, Any], progress: float) -> None:
        log.append(self.run, record)
        self.watcher.record(record, progress)

    def _evaluate(self, progress: float) -> None:
        spent = self.progress.spent
        if self.heldout is not None:
            rows = self.recipe.train.heldout_rows
            found = measure_rows(self.recipe, self.model, self.heldout, rows, self.dtype)
            loss, record = found.loss, heldout_record(spent, found, self.bytes_per_token)
            self._write(record, progress)
            if math.isfinite(loss):
                self._proven_step = spent.steps
                self._keep_best(loss)
            else:
                self.watcher.note(f"step {spent.steps}: the held-out loss is not finite")
        samples = self.watcher.samples()
        if samples:
            self._write({"kind": "samples", "step": spent.steps, "samples": samples}, progress)
        # Looking at the model takes time too, but it is no part of the training rate.
        self._window[0] = time.monotonic()

    def _keep_best(self, loss: float) -> None:
        best = self.progress.best_loss
        if best is None or not loss >= best:  # an older Foreword's best may be nan
            self.progress.best_loss = loss
            self.progress.best = checkpoint.name_of(self.progress.spent.steps)
            self._save()

    def _save(self) -> None:
        spent = self.progress.spent
        if spent.steps == self._saved_step:
            return
        spent.seconds = time.monotonic() - self._began
        folder = self.run / "checkpoints" / checkpoint.name_of(spent.steps)
        try:
            checkpoint.save(folder, self.model, self.optimizer, self.progress.dump(), self._carried)
        except NotFiniteError as error:
            raise self._stopped(str(error)) from error
        self._is_due = False
        checkpoint.prune(self.run, self.recipe.train.keep, self.progress.best, folder.name)
        self._saved_step, self._saved_at = spent.steps, time.monotonic()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C finish the step, save and leave; a second one leaves at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            if self._stop.is_set():
                raise KeyboardInterrupt
            self._stop.set()
            self.watcher.note("stopping: the step is finished and saved first")

        old: dict[signal.Signals, Any] = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            old[number] = signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)


def _passes(before: float, after: float, times: int) -> bool:
    """Whether one of `times` equal parts of the budget ended between two moments."""
    return math.floor(before * times + 1e-9) < math.floor(after * times + 1e-9)
