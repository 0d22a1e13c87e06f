"""The hooks of a run: log metrics, probe, measure held-out text, show samples, save checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foreword.errors import UserError
from foreword.nn.evaluation_mode import evaluation_mode
from foreword.nn.model import Model
from foreword.runs.continued import START
from foreword.runs.gathered_model import GatheredModel
from foreword.runs.measure import (
    Measure,
    Watch,
    heldout_record,
    measure_rows,
    measure_sources,
)
from foreword.runs.provenance import read_state, require_own_files
from foreword.runs.recipe import Recipe
from foreword.runs.setup import TrainingSetup
from foreword.runs.staged import Stages, feed_of
from foreword.runs.stages import EVALUATING, SAVING, TRAINING, ProgressReporter
from foreword.runs.trained_model import TrainedModel
from foreword.settings import kinds
from foreword.text.tokenizer import Tokenizer
from foreword.train import checkpoint, log, processes
from foreword.train.budget import Progress
from foreword.train.device import matmul_flops_per_second
from foreword.train.hooks import Hook
from foreword.train.loop import Loop
from foreword.train.saving import Saver
from foreword.types import Rows

RECORDS = 400  # training records in the log of a whole run
SAMPLED_ROWS = 3
CHECKPOINT_SECONDS = 600.0  # maximum time between checkpoints

# Makes samples from held-out rows: `{"prompt": ..., "text": ...}` each.
Samples = Callable[[Model, Recipe, Tokenizer, Rows, torch.device], list[dict[str, str]]]
# One figure of a model for each probe, by name.
Probing = Callable[[TrainedModel], Mapping[str, float | None]]
# The probing by the tables of probes that a run stores; None without any.
ProbingOf = Callable[[Sequence[Mapping[str, Any]]], Probing | None]


@dataclass(frozen=True)
class RunLog:
    """The log of a run, which its reporter shows too.

    Attributes:
        run: the run folder.
        reporter: receives every record, and shows the work between steps.
    """

    run: Path
    reporter: ProgressReporter

    @contextmanager
    def between_steps(self, name: str) -> Iterator[Callable[..., None]]:
        """Show a stage in place of training; yield its progress callback, of (done, total)."""
        try:
            yield self.reporter.stage(name)
        finally:
            self.reporter.stage(TRAINING)

    def write(self, record: dict[str, Any], loop: Loop) -> None:
        """Append a record to `metrics.jsonl`; of several processes the first does."""
        if not processes.is_first():
            return
        log.append(self.run, record)
        self.reporter.record(record, loop.progress)


class LogMetrics(Hook):
    """Write loss, learning rate and speed, after the first step and then `RECORDS` times.

    Args:
        run_log: the log to write to.
        setup: the run.
    """

    times = RECORDS

    def __init__(self, run_log: RunLog, setup: TrainingSetup) -> None:
        self._log, self._setup = run_log, setup

    def begin(self, loop: Loop) -> None:
        """Measure the machine's peak rate of matrix products and start the first window."""
        peak = matmul_flops_per_second(self._setup.device, self._setup.dtype)
        self._peak = peak * processes.count()
        self._start_window(loop)

    def is_due(self, before: float, after: float, loop: Loop) -> bool:
        """Return whether this is the first step, or another record is due."""
        return loop.state.spent.steps == 1 or super().is_due(before, after, loop)

    def run(self, loop: Loop) -> None:
        """Write a record; speeds are means since the previous one."""
        state, spent, last = loop.state, loop.state.spent, loop.last
        assert last is not None
        seconds = max(loop.step_seconds - self._seconds, 1e-9)
        record = {
            "kind": "train",
            "step": spent.steps,
            "loss": last.loss,
            "lr": self._setup.recipe.optimizer.lr * loop.lr_factor,
            "grad_norm": last.grad_norm,
            "tokens": spent.tokens,
            "flops": spent.flops,
            "seconds": round(spent.seconds, 3),
            "tokens_per_second": (spent.tokens - self._tokens) / seconds,
            "share_of_matmul": (spent.flops - self._flops) / seconds / self._peak,
            "skipped": state.skipped,
            **last.components,
        }
        self._start_window(loop)
        self._log.write(record, loop)

    def _start_window(self, loop: Loop) -> None:
        self._seconds, self._tokens = loop.step_seconds, loop.state.spent.tokens
        self._flops = loop.state.spent.flops


class SaveCheckpoints(Hook):
    """Save `train.checkpoints` times, at least every ten minutes, and at the end.

    Args:
        run_log: the log to write to.
        recipe: the run's recipe.
        saver: writes the checkpoints.
    """

    def __init__(self, run_log: RunLog, recipe: Recipe, saver: Saver) -> None:
        self.times, self._saver = recipe.train.checkpoints, saver
        self._log, self._run, self._keep = run_log, run_log.run, recipe.train.kept_checkpoints
        self._rows = recipe.rows_per_step
        self._is_due = False

    def begin(self, loop: Loop) -> None:
        """Start the clock; a resumed run's first step is saved already."""
        self._saved_at = loop.state.spent.seconds
        self._saved_step = loop.state.spent.steps or -1

    def after_step(self, loop: Loop) -> None:
        """Say that the last checkpoint cannot be written, if that has turned out.

        Raises:
            UserError: the disk is full.
        """
        self._saver.check()

    def is_due(self, before: float, after: float, loop: Loop) -> bool:
        """Return whether a checkpoint is due; after a skipped step it is delayed."""
        is_late = loop.state.spent.seconds - self._saved_at > CHECKPOINT_SECONDS
        self._is_due |= is_late or super().is_due(before, after, loop)
        return self._is_due and loop.last is not None and loop.last.is_finite

    def run(self, loop: Loop) -> None:
        """Save a checkpoint and delete old ones.

        Raises:
            NotFiniteError: a weight is not finite.
            UserError: the disk is full, or files of the run were removed.
        """
        self._is_due, spent = False, loop.state.spent
        if spent.steps == self._saved_step:  # as the best, a moment ago
            return
        spent.seconds = loop.elapsed()
        folder = self._run / "checkpoints" / checkpoint.name_of(spent.steps)
        memory = processes.gather_memory(loop.memory, self._rows)
        with self._log.between_steps(SAVING):
            contents = checkpoint.contents_of(
                loop.model, loop.optimizer, loop.state.dump(), memory, loop.average.other
            )
            prune = partial(checkpoint.prune, self._run, self._keep, loop.state.best, folder.name)
            self._saver.save(folder, contents, prune)
        self._saved_step, self._saved_at = spent.steps, spent.seconds
        require_own_files(self._run)

    def end(self, loop: Loop) -> None:
        """Save the last step, and wait for it."""
        self.run(loop)
        with self._log.between_steps(SAVING):
            self._saver.wait()


class _Evaluation(Hook):
    """What is done `train.evaluations` times, and always at the end."""

    def is_due(self, before: float, after: float, loop: Loop) -> bool:
        """Return whether a measurement is due."""
        return after >= 1 or super().is_due(before, after, loop)


EARLY = 0.01  # share of the budget after which what a turned model kept shows


class MeasureHeldOut(_Evaluation):
    """Measure the held-out loss `train.evaluations` times and at the end; save the best.

    Of weights that another training left (`--from`) it is measured before the first step, and of a
    model that was turned into one of another family once more soon after (`EARLY`).

    Args:
        run_log: the log to write to.
        setup: the run, with held-out text.
        bytes_per_token: bytes per token of that text, for bits per byte.
        checkpoints: saves the best checkpoint.
        stages: what the training does now.
    """

    def __init__(
        self,
        run_log: RunLog,
        setup: TrainingSetup,
        bytes_per_token: float,
        checkpoints: SaveCheckpoints,
        stages: Stages,
    ) -> None:
        self.times = setup.recipe.train.evaluations
        self._log, self._setup, self._checkpoints = run_log, setup, checkpoints
        self._stages = stages
        self._bytes_per_token = bytes_per_token
        self._is_turned = self._is_early = False

    def begin(self, loop: Loop) -> None:
        """Log the loss of weights that another training left, before the first step."""
        if (self._log.run / START).is_dir():
            self._is_turned = "turned" in read_state(self._log.run)
            if not loop.state.spent.steps:
                self._measured(loop)

    def is_due(self, before: float, after: float, loop: Loop) -> bool:
        """Return whether a measurement is due, or the early one of a turned model."""
        is_due = super().is_due(before, after, loop)
        self._is_early = self._is_turned and before < EARLY <= after and not is_due
        return is_due or self._is_early

    def run(self, loop: Loop) -> None:
        """Log the held-out loss; save a checkpoint if it is the lowest, unless it is early."""
        state, measured = loop.state, self._measured(loop)
        if measured is None or self._is_early:
            return
        loss = processes.of_first(measured.loss)
        if not math.isfinite(loss):
            loop.warn(f"step {state.spent.steps}: the held-out loss is not finite")
            return
        loop.last_finite_step = state.spent.steps
        if state.best_loss is None or not loss >= state.best_loss:
            state.best_loss = loss
            state.best = checkpoint.name_of(state.spent.steps)
            self._checkpoints.run(loop)

    def _measured(self, loop: Loop) -> Measure | None:
        """Measure and log the held-out loss; None if all that is held out is shorter than a row."""
        setup = self._setup
        if setup.heldout is None:
            return None
        with self._log.between_steps(EVALUATING) as watch:
            measured = self._measure(setup.recipe, setup.model, watch)
            recipe, model = self._stages.now(setup.model)
            names = [kinds.name_of(one.objective) for one in (recipe, setup.recipe)]
            # A stage with another objective is measured by its own too.
            if measured is not None and names[0] != names[1]:
                own = self._measure(recipe, model, watch)
                assert own is not None
                losses = {**measured.components, names[0]: own.loss}
                measured = replace(measured, components=losses)
        if measured is not None:
            record = heldout_record(loop.state.spent, measured, self._bytes_per_token)
            self._log.write(record, loop)
        return measured

    def _measure(self, recipe: Recipe, model: Model, watch: Watch) -> Measure | None:
        """Return the loss of a stage on held-out text; of the last one in the usual case."""
        setup, rows = self._setup, recipe.train.heldout_rows
        assert setup.heldout is not None
        with setup.computing(recipe.objective, model) as loss_fn:
            if setup.sources:
                sources = [
                    replace(s, heldout=s.heldout and feed_of(s.heldout, recipe))
                    for s in setup.sources
                ]
                return measure_sources(recipe, model, sources, rows, setup.dtype, watch, loss_fn)
            heldout = feed_of(setup.heldout, recipe)
            return measure_rows(recipe, model, heldout, rows, setup.dtype, watch, loss_fn)


class MeasureProbes(_Evaluation):
    """Probe the model before its first step, and as often as the held-out loss is measured.

    Args:
        run_log: log of the run.
        model: gathers the model of the run.
        probing: measures it.
        stages: what the training does now.
    """

    def __init__(
        self, run_log: RunLog, model: GatheredModel, probing: Probing, stages: Stages
    ) -> None:
        self.times = model.setup.recipe.train.evaluations
        self._log, self._model, self._setup = run_log, model, model.setup
        self._stages = stages
        self._probing: Probing | None = probing

    def begin(self, loop: Loop) -> None:
        """Probe the model that has not been trained, which the others are compared with.

        Raises:
            UserError: a probe does not support the model.
        """
        if not loop.state.spent.steps:
            self._measure(loop)

    def run(self, loop: Loop) -> None:
        """Write the record of all probes; one that fails now ends them, and training continues."""
        try:
            self._measure(loop)
        except UserError as error:
            self._probing = None
            loop.warn(f"step {loop.state.spent.steps:,}: no more probes: {error}")

    def _measure(self, loop: Loop) -> None:
        model = self._model.gather(is_needed=self._probing is not None)
        if model is None or self._probing is None:
            return
        recipe, model = self._stages.now(model)
        # In float32, like `foreword probe`.
        trained = TrainedModel(
            model, recipe, self._setup.tokenizer, self._model.device, source=self._log.run
        )
        with self._log.between_steps(EVALUATING), evaluation_mode(model):
            figures = self._probing(trained)
        self._log.write(probe_record(loop.state.spent, figures), loop)


def probe_record(spent: Progress, figures: Mapping[str, float | None]) -> dict[str, Any]:
    """Return the record of a run's probes for `metrics.jsonl`.

    Args:
        spent: what the run has used so far.
        figures: the figure of each probe, by name.
    """
    return {
        "kind": "probes",
        "step": spent.steps,
        "tokens": spent.tokens,
        "flops": spent.flops,
        "seconds": round(spent.seconds, 3),
        **figures,
    }


class ShowSamples(_Evaluation):
    """Show samples from a few held-out rows, as often as the held-out loss is measured.

    Args:
        run_log: the log to write to.
        model: gathers the model of the run.
        samples: makes the samples.
        stages: what the training does now.
    """

    def __init__(
        self, run_log: RunLog, model: GatheredModel, samples: Samples, stages: Stages
    ) -> None:
        self.times = model.setup.recipe.train.evaluations
        self._log, self._model, self._samples, self._stages = run_log, model, samples, stages

    def run(self, loop: Loop) -> None:
        """Write samples from the first rows."""
        setup = self._model.setup
        if setup.heldout is None or (model := self._model.gather()) is None:
            return
        rows, device = setup.heldout.packed.rows(np.arange(SAMPLED_ROWS)), self._model.device
        recipe, model = self._stages.now(model)
        with self._log.between_steps(EVALUATING), evaluation_mode(model):
            records = self._samples(model, recipe, setup.tokenizer, rows, device)
        if records:
            step = loop.state.spent.steps
            self._log.write({"kind": "samples", "step": step, "samples": records}, loop)
