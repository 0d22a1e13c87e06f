"""A job of a comparison, computed: in this process, or as a task of a cluster.

It depends on its `JobInputs` and on the files that it names alone. Who asked for it stores the
result.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foreword.comparison.grid import GridTask, TaskExamples, read_examples
from foreword.comparison.jobs import Job
from foreword.comparison.margins import to_lines
from foreword.comparison.probing import GridText, measure, measure_loss
from foreword.data.prepared_text import PreparedText
from foreword.disk import stored
from foreword.errors import TrainingStoppedError
from foreword.evaluation.samples import samples
from foreword.planning.forecast import forecast_notes
from foreword.planning.request import RunRequest
from foreword.probes._while_training import probing, tables_of
from foreword.runs import run as running
from foreword.runs.branch import before_decay, branch
from foreword.runs.measure import measure as measure_text
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import Run, open_run
from foreword.runs.stages import TRAINING, ProgressReporter, Silent
from foreword.runs.trained_model import TrainedModel
from foreword.train import log
from foreword.train.budget import Budget
from foreword.tuning.bag_of_words import bags_of_words
from foreword.tuning.drawing import draw
from foreword.tuning.job import Examples, TuneJob
from foreword.tuning.trainings import Listeners
from foreword.tuning.tune import tune
from foreword.tuning.tune_result import as_json
from foreword.tuning.tuned_model import tuned_start

Content = dict[str, Any]
BATCHES = "heldout_batches.json"  # in a run: the loss on each batch of held-out text, at the end


@dataclass(frozen=True)
class JobInputs:
    """All that a job is computed from.

    Attributes:
        job: the job.
        command: the command line of the comparison, for results.
        recipe: the recipe of a pretraining or a trial.
        shards: folder of the token shards to train on or to measure, or that of each source.
        run: the run folder, which a pretraining and a trial fill; None for a baseline.
        device: where a job that reads a run computes.
        first: the task that the model is fine-tuned on before that of the job; None for none.
        start: the run that a pretraining goes on from, before its decay; None for the first step.
        keeps_batches: whether a pretraining also saves its last loss on each batch of held-out
            text, which verdicts on cells of one seed are tested on.
    """

    job: Job
    command: str
    recipe: Recipe | None = None
    shards: tuple[str, ...] = ()
    run: Path | None = None
    device: str = "auto"
    first: GridTask | None = None
    start: Path | None = None
    keeps_batches: bool = False

    def absolute(self) -> JobInputs:
        """Return the inputs with absolute paths, for a process in another folder."""
        run, start = self.run and self.run.absolute(), self.start and self.start.absolute()
        shards = tuple(str(Path(folder).absolute()) for folder in self.shards)
        return replace(self, run=run, shards=shards, start=start)


def compute(
    inputs: JobInputs, progress: ProgressReporter, examples: TaskExamples | None = None
) -> Content | None:
    """Return the result of a job; None if a signal stopped it.

    Args:
        inputs: what it is computed from.
        progress: shows it.
        examples: the examples of its task; default: read from their files.

    Raises:
        UserError: as the job's work; a trial that diverges is a result.
    """
    if inputs.recipe is not None:
        return _train(inputs, inputs.recipe, progress)
    # The others are measured at once; the result has the time that they took.
    began, probe, task = time.monotonic(), inputs.job.probe, inputs.job.task
    if isinstance(probe, GridText):
        content = measure_loss(probe, inputs.shards[0], _trained(inputs))
        content |= {"command": inputs.command}
    elif probe is not None:
        content = measure(probe, _trained(inputs)) | {"command": inputs.command}
    else:
        assert task is not None
        examples = examples or read_examples(task)
        if inputs.run is None:
            content = _learn_words(task, examples)
        else:
            content = _tune(inputs, task, examples, progress)
    progress.stage(TRAINING)(1, 1)
    return content | {"seconds": round(time.monotonic() - began, 3)}


def compute_remotely(inputs: JobInputs) -> tuple[Content | None, list[str]]:
    """Return the result of a job, and its warnings: a task of a cluster."""
    warnings: list[str] = []
    return compute(inputs, Silent(warnings.append)), warnings


def _train(inputs: JobInputs, recipe: Recipe, progress: ProgressReporter) -> Content | None:
    """Train a run, from the start or from its newest checkpoint; a trial is measured."""
    run, is_trial = inputs.run, inputs.job.planned is not None
    assert run is not None
    try:
        if not (run / "recipe.toml").is_file():
            text = running.Inputs(inputs.shards, probes=tables_of(recipe.probes))
            if is_trial:
                text = running.Inputs(inputs.shards, shared_embeddings=run.parent)
            notes = {} if is_trial else forecast_notes(RunRequest(recipe, text))
            if inputs.start is None:
                running.start(recipe, text, run, notes=notes)
            else:
                budget = Budget.of(recipe.train)
                branch(before_decay(inputs.start, budget), run, budget)
                Run(run).note(**notes)
        sample_fn = None if is_trial else samples
        if not running.train_run(run, progress, sample_fn, (), probing):
            return None
    except TrainingStoppedError:
        if not is_trial:
            raise
        return _measured(run) | {"loss": None}
    if is_trial:
        return _measured(run)
    if inputs.keeps_batches:
        _save_batches(inputs, run)
    return {}


def _save_batches(inputs: JobInputs, run: Path) -> None:
    """Save the loss of a finished run on each batch of its held-out text."""
    heldout = PreparedText.load(inputs.shards[0], verify=False).heldout
    measured = measure_text(_trained(inputs), heldout)
    if measured is not None and measured.batches:
        stored.write(run / BATCHES, {"batches": measured.batches})


def _measured(run: Path) -> Content:
    """Return the last loss of a run on its validation part, and what the run took."""
    records = log.read(run)
    losses = [record["loss"] for record in records if record["kind"] == "heldout"]
    measured = (record for record in reversed(records) if "tokens" in record)
    last = next(measured, {"step": 0, "tokens": 0, "seconds": 0.0})
    return {
        "loss": losses[-1] if losses else None,
        "steps": last["step"],
        "tokens": last["tokens"],
        "seconds": last["seconds"],
    }


def _learn_words(task: GridTask, examples: TaskExamples) -> Content:
    train_sets = draw(examples.train, task.tune.examples, task.tune.seeds, task.task)
    bags = bags_of_words(task.task, train_sets, examples.dev)
    known = [one.correct for one in bags if one.correct is not None]
    correct = {"correct": to_lines(np.stack(known))} if known else {}
    rows = [{"start": one.row.start, "strategy": one.row.strategy, **one.row.means} for one in bags]
    return {"rows": rows, **correct}


def _tune(
    inputs: JobInputs, task: GridTask, examples: TaskExamples, progress: ProgressReporter
) -> Content:
    trained, listeners = _trained(inputs), Listeners(progress.stage(TRAINING))
    if (first := inputs.first) is not None:
        result = tune(trained, _tune_job(first, read_examples(first), seeds=1), listeners)
        trained = tuned_start(result.network, result.recipe, result.tokenizer, trained)
    job = _tune_job(task, examples, from_scratch=inputs.job.is_scratch)
    result = tune(trained, job, listeners)
    known = result.correct.get(result.rows[0].name)
    correct = {} if known is None else {"correct": to_lines(known)}
    return as_json(result, task.name, inputs.command) | correct


def _tune_job(task: GridTask, examples: TaskExamples, **settings: Any) -> TuneJob:
    return TuneJob(
        task.task.for_examples(examples.columns, examples.train),
        Examples(examples.train, examples.dev, skipped=examples.skipped),
        [replace(task.tune, **settings)],
    )


def _trained(inputs: JobInputs) -> TrainedModel:
    assert inputs.run is not None
    return open_run(inputs.run, inputs.device)
