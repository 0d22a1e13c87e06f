"""A piece of a comparison, computed: in this process, or as a task of a cluster.

It depends on its `PieceOrder` and on the files that it names alone. Who ordered it stores the
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
class PieceOrder:
    """All that a piece is computed from.

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

    def absolute(self) -> PieceOrder:
        """Return the order with absolute paths, for a process in another folder."""
        run = self.run and self.run.absolute()
        shards = tuple(str(Path(folder).absolute()) for folder in self.shards)
        return replace(self, run=run, shards=shards)


def compute(
    order: PieceOrder, progress: ProgressReporter, examples: TaskExamples | None = None
) -> Content | None:
    """Return the result of a piece; None if a signal stopped it.

    Args:
        order: the piece.
        progress: shows it.
        examples: of its task; default: read from their files.

    Raises:
        UserError: as the piece's work; a trial that diverges is a result.
    """
    if order.recipe is not None:
        return _train(order, order.recipe, progress)
    # The others are measured at once; the result has the time that they took.
    began = time.monotonic()
    if isinstance(order.probe, GridText):
        content = measure_loss(order.probe, order.shards[0], _trained(order))
        content |= {"command": order.command}
    elif order.probe is not None:
        content = measure(order.probe, _trained(order)) | {"command": order.command}
    else:
        assert order.task is not None
        examples = examples or read_examples(order.task)
        if order.run is None:
            content = _learn_words(order.task, examples)
        else:
            content = _tune(order, order.task, examples, progress)
    progress.stage(TRAINING)(1, 1)
    return content | {"seconds": round(time.monotonic() - began, 3)}


def compute_remotely(order: PieceOrder) -> tuple[Content | None, list[str]]:
    """Return the result of a piece, and its warnings: a task of a cluster."""
    warnings: list[str] = []
    return compute(order, Silent(warnings.append)), warnings


def _train(order: PieceOrder, recipe: Recipe, progress: ProgressReporter) -> Content | None:
    """Train a run, from the start or from its newest checkpoint; a trial is measured."""
    run = order.run
    assert run is not None
    try:
        if not (run / "recipe.toml").is_file():
            inputs = running.Inputs(order.shards, probes=tables_of(recipe.probes))
            if order.is_trial:
                inputs = running.Inputs(order.shards, shared_embeddings=run.parent)
            running.start(recipe, inputs, run)
        sample_fn = None if order.is_trial else samples
        if not running.train_run(run, progress, progress.stage, sample_fn, (), probing):
            return None
    except TrainingStoppedError:
        if not order.is_trial:
            raise
        return _measured(run) | {"loss": None}
    return _measured(run) if order.is_trial else {}


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
    order: PieceOrder, task: GridTask, examples: TaskExamples, progress: ProgressReporter
) -> Content:
    result = tune(
        _trained(order),
        task.task.for_columns(examples.columns),
        examples.train,
        examples.dev,
        replace(task.tune, from_scratch=order.is_scratch),
        progress.stage(TRAINING),
    )
    result = replace(result, examples=result.examples | {"skipped": examples.skipped})
    known = result.correct.get(row_name(result.rows[0]))
    correct = {} if known is None else {"correct": to_lines(known)}
    return as_json(result, task.name, order.command) | correct


def _trained(order: PieceOrder) -> TrainedModel:
    assert order.run is not None
    return open_run(order.run, order.device)
