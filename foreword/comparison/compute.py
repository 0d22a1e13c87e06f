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
from foreword.comparison.margins import to_lines
from foreword.comparison.probing import GridProbe, GridText, measure, measure_loss
from foreword.errors import TrainingStoppedError
from foreword.evaluation.samples import samples
from foreword.probes._while_training import probing, tables_of
from foreword.runs import run as running
from foreword.runs.recipe import Recipe
from foreword.runs.stages import TRAINING, ProgressReporter, Silent
from foreword.runs.trained_model import TrainedModel, open_run
from foreword.train import log
from foreword.tuning.bag_of_words import bags_of_words
from foreword.tuning.drawing import draw
from foreword.tuning.result import as_json, row_name
from foreword.tuning.run import tune

Content = dict[str, Any]


@dataclass(frozen=True)
class JobInputs:
    """All that a job is computed from.

    Attributes:
        command: the command line of the comparison, for results.
        recipe: of a pretraining or a trial: the recipe.
        shards: of those: the folder of the token shards, or that of each source; of a text: its.
        run: the run folder, which a pretraining and a trial fill; None for a baseline.
        is_trial: whether it is a trial of a sweep.
        task: of a fine-tuning or a baseline: the task.
        is_scratch: whether the network is fine-tuned from random weights.
        probe: of a measurement: the probe or the text.
        device: of what reads a run: the device.
    """

    command: str
    recipe: Recipe | None = None
    shards: tuple[str, ...] = ()
    run: Path | None = None
    is_trial: bool = False
    task: GridTask | None = None
    is_scratch: bool = False
    probe: GridProbe | GridText | None = None
    device: str = "auto"

    def absolute(self) -> JobInputs:
        """Return the inputs with absolute paths, for a process in another folder."""
        run = self.run and self.run.absolute()
        shards = tuple(str(Path(folder).absolute()) for folder in self.shards)
        return replace(self, run=run, shards=shards)


def compute(
    inputs: JobInputs, progress: ProgressReporter, examples: TaskExamples | None = None
) -> Content | None:
    """Return the result of a job; None if a signal stopped it.

    Args:
        inputs: what it is computed from.
        progress: shows it.
        examples: of its task; default: read from their files.

    Raises:
        UserError: as the job's work; a trial that diverges is a result.
    """
    if inputs.recipe is not None:
        return _train(inputs, inputs.recipe, progress)
    # The others are measured at once; the result has the time that they took.
    began = time.monotonic()
    if isinstance(inputs.probe, GridText):
        content = measure_loss(inputs.probe, inputs.shards[0], _trained(inputs))
        content |= {"command": inputs.command}
    elif inputs.probe is not None:
        content = measure(inputs.probe, _trained(inputs)) | {"command": inputs.command}
    else:
        assert inputs.task is not None
        examples = examples or read_examples(inputs.task)
        if inputs.run is None:
            content = _learn_words(inputs.task, examples)
        else:
            content = _tune(inputs, inputs.task, examples, progress)
    progress.stage(TRAINING)(1, 1)
    return content | {"seconds": round(time.monotonic() - began, 3)}


def compute_remotely(inputs: JobInputs) -> tuple[Content | None, list[str]]:
    """Return the result of a job, and its warnings: a task of a cluster."""
    warnings: list[str] = []
    return compute(inputs, Silent(warnings.append)), warnings


def _train(inputs: JobInputs, recipe: Recipe, progress: ProgressReporter) -> Content | None:
    """Train a run, from the start or from its newest checkpoint; a trial is measured."""
    run = inputs.run
    assert run is not None
    try:
        if not (run / "recipe.toml").is_file():
            text = running.Inputs(inputs.shards, probes=tables_of(recipe.probes))
            if inputs.is_trial:
                text = running.Inputs(inputs.shards, shared_embeddings=run.parent)
            running.start(recipe, text, run)
        sample_fn = None if inputs.is_trial else samples
        if not running.train_run(run, progress, progress.stage, sample_fn, (), probing):
            return None
    except TrainingStoppedError:
        if not inputs.is_trial:
            raise
        return _measured(run) | {"loss": None}
    return _measured(run) if inputs.is_trial else {}


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
    correct = {"correct": to_lines(np.stack([one.correct for one in bags]))} if bags else {}
    return {"rows": [one.row for one in bags], **correct}


def _tune(
    inputs: JobInputs, task: GridTask, examples: TaskExamples, progress: ProgressReporter
) -> Content:
    result = tune(
        _trained(inputs),
        task.task.for_columns(examples.columns),
        examples.train,
        examples.dev,
        replace(task.tune, from_scratch=inputs.is_scratch),
        progress.stage(TRAINING),
    )
    result = replace(result, examples=result.examples | {"skipped": examples.skipped})
    known = result.correct.get(row_name(result.rows[0]))
    correct = {} if known is None else {"correct": to_lines(known)}
    return as_json(result, task.name, inputs.command) | correct


def _trained(inputs: JobInputs) -> TrainedModel:
    assert inputs.run is not None
    return open_run(inputs.run, inputs.device)
