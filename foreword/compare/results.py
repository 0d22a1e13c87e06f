"""What a comparison came to, read from its folder: runs, scores, failures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from foreword import config
from foreword.compare.grid import Cell, GridTask
from foreword.compare.interval import Interval, interval
from foreword.compare.run import Comparison, Work
from foreword.runs.provenance import read_state
from foreword.train import checkpoint, log
from foreword.tune.result import is_score


@dataclass(frozen=True)
class Axis:
    """What curves are drawn against: the budget that the cells have alike.

    Attributes:
        label: for people.
        key: in the records of a run.
        unit: how much of `key` is 1.
    """

    label: str
    key: str
    unit: float = 1.0


AXES = {
    "flops": Axis("FLOPs", "flops"),
    "tokens": Axis("tokens", "tokens"),
    "epochs": Axis("tokens", "tokens"),
    "steps": Axis("steps", "step"),
    "hours": Axis("minutes", "seconds", 60.0),
}


@dataclass(frozen=True)
class RunResult:
    """A finished pretraining.

    Attributes:
        cell: its name.
        seed: of pretraining.
        run: the run folder.
        parameters: of the model, its heads included.
        bytes: of the checkpoint on disk, without what only training needs.
        steps: taken.
        tokens: read.
        flops: computed.
        seconds: of training, evaluation included.
        tokens_per_second: the middle one of those logged.
        heldout_loss: nats per prediction of the cell's own objective, at the end.
        perplexity: per token, where the model predicts all of the text.
        bits_per_byte: where it does.
        curve: (what was spent, held-out loss) at each evaluation; see `Axis`.
        samples: what the model said at the end, `{"prompt": ..., "text": ...}` each.
    """

    cell: str
    seed: int
    run: str
    parameters: int
    bytes: int
    steps: int
    tokens: int
    flops: float
    seconds: float
    tokens_per_second: float | None
    heldout_loss: float | None
    perplexity: float | None
    bits_per_byte: float | None
    curve: tuple[tuple[float, float], ...]
    samples: tuple[dict[str, str], ...]


NUMBERS = (
    "parameters",
    "bytes",
    "tokens",
    "flops",
    "seconds",
    "tokens_per_second",
    "heldout_loss",
    "perplexity",
    "bits_per_byte",
)


@dataclass(frozen=True)
class TuningScore:
    """One fine-tuning's scores on the dev examples.

    Attributes:
        cell: its name; "" for the guess that reads nothing.
        seed: of pretraining; 0 from scratch.
        task: its name.
        start: pretrained, from scratch, or what the guess is called.
        tuning_seed: of fine-tuning.
        scores: by metric.
    """

    cell: str
    seed: int
    task: str
    start: str
    tuning_seed: int
    scores: dict[str, float]


@dataclass(frozen=True)
class Results:
    """All of it.

    Attributes:
        comparison: whose results they are.
        runs: the finished pretrainings.
        scores: the finished fine-tunings', a record per seed, and the guesses'.
        dev: how many examples each task scores on, by its name.
    """

    comparison: Comparison
    runs: Sequence[RunResult]
    scores: Sequence[TuningScore]
    dev: Mapping[str, int] = field(default_factory=dict)

    @property
    def axis(self) -> Axis:
        """What curves are drawn against."""
        assert self.comparison.grid.budget is not None
        return AXES[self.comparison.grid.budget.unit]

    @property
    def is_one_objective(self) -> bool:
        """Whether all predict all of the text, so that their losses compare."""
        return all(run.bits_per_byte is not None for run in self.runs)

    def cell_interval(self, cell: Cell, key: str) -> Interval | None:
        """A number of a cell's runs, over the seeds that have it."""
        found = [getattr(run, key) for run in self.runs if run.cell == cell.name]
        known = [value for value in found if value is not None]
        return interval(known) if known else None

    def metric(self, task: GridTask) -> str:
        """What is shown of a task: the metric it names, or the first; "" where none is known."""
        found = [score.scores for score in self.scores if score.task == task.name]
        return task.metric or (next(iter(found[0]), "") if found else "")

    def task_interval(self, cell: str, task: GridTask, start: str) -> Interval | None:
        """The score of a cell on a task.

        Over seeds of pretraining, each the mean of its fine-tunings, where there are several; else
        over seeds of fine-tuning.
        """
        metric = self.metric(task)
        by_seed: dict[int, list[float]] = {}
        for score in self.scores:
            if (score.cell, score.task, score.start) == (cell, task.name, start):
                by_seed.setdefault(score.seed, []).append(score.scores.get(metric, math.nan))
        if not by_seed:
            return None
        if len(by_seed) == 1:
            return interval(next(iter(by_seed.values())))
        return interval([sum(values) / len(values) for values in by_seed.values()])

    def as_document(self) -> dict[str, Any]:
        """Numbers alone, as JSON."""
        failures = [
            {"work": str(failure.work), "error": failure.error, "is_fault": failure.is_fault}
            for failure in self.comparison.failures
        ]
        return {
            "grid": config.to_table(self.comparison.grid),
            "axis": self.axis.label,
            "is_one_objective": self.is_one_objective,
            "dev": dict(self.dev),
            "metrics": {task.name: self.metric(task) for task in self.comparison.grid.tasks},
            "cells": [self._cell(cell) for cell in self.comparison.grid.cells],
            "runs": [asdict(run) for run in self.runs],
            "scores": [asdict(score) for score in self.scores],
            "failures": failures,
        }

    def _cell(self, cell: Cell) -> dict[str, Any]:
        found = {key: _interval_table(self.cell_interval(cell, key)) for key in NUMBERS}
        tasks = {
            task.name: {
                start: _interval_table(self.task_interval(cell.name, task, start))
                for start in ("pretrained", "from scratch")
            }
            for task in self.comparison.grid.tasks
        }
        return {"cell": cell.name, "recipe": cell.recipe, **found, "tasks": tasks}


def gather(comparison: Comparison) -> Results:
    """Reads what there is of a comparison's results."""
    runs, scores = [], []
    dev: dict[str, int] = {}
    assert comparison.grid.budget is not None
    for piece in comparison.work():
        if piece.task is None:
            run = comparison.run_folder(piece.cell, piece.seed)
            if run is not None and comparison.seconds_taken(piece) is not None:
                runs.append(_run_result(piece, run, AXES[comparison.grid.budget.unit]))
            continue
        done = comparison.saved_tuning(piece)
        if done is None:
            continue
        scores += _tuning_scores(piece, piece.task, done["epochs"])
        if piece.task.name not in dev:
            dev[piece.task.name] = done["examples"]["dev"]
            scores += [
                TuningScore("", 0, piece.task.name, row["strategy"], 0, _metrics(row))
                for row in done["rows"]
                if row["start"] == "no model"
            ]
    return Results(comparison, runs, scores, dev)


def _run_result(piece: Work, run: Path, axis: Axis) -> RunResult:
    folder = checkpoint.newest(run, [])
    spent = checkpoint.read_state(folder)["spent"]
    records: dict[str, list[dict[str, Any]]] = {"train": [], "heldout": [], "samples": []}
    for record in log.read(run):
        records.setdefault(record["kind"], []).append(record)
    rates = [record["tokens_per_second"] for record in records["train"]]
    heldout = records["heldout"]
    last = heldout[-1] if heldout else dict.fromkeys(("loss", "perplexity", "bits_per_byte"))
    is_all = last["bits_per_byte"] is not None
    files = [file for file in folder.iterdir() if file.name not in checkpoint.FOR_TRAINING]
    return RunResult(
        cell=piece.cell.name,
        seed=piece.seed,
        run=str(run),
        parameters=read_state(run)["parameters"],
        bytes=sum(file.stat().st_size for file in files),
        steps=spent["steps"],
        tokens=spent["tokens"],
        flops=spent["flops"],
        seconds=spent["seconds"],
        tokens_per_second=median(rates) if rates else None,
        heldout_loss=last["loss"],
        perplexity=last["perplexity"] if is_all else None,
        bits_per_byte=last["bits_per_byte"],
        curve=tuple((r[axis.key] / axis.unit, r["loss"]) for r in heldout if r["loss"] is not None),
        samples=tuple(records["samples"][-1]["samples"]) if records["samples"] else (),
    )


def _tuning_scores(
    piece: Work, task: GridTask, epochs: Sequence[dict[str, Any]]
) -> list[TuningScore]:
    """The last epoch of each seed."""
    last = max(row["epoch"] for row in epochs)
    seed = 0 if piece.is_scratch else piece.seed
    return [
        TuningScore(piece.cell.name, seed, task.name, row["start"], row["seed"], _metrics(row))
        for row in epochs
        if row["epoch"] == last
    ]


def _metrics(row: dict[str, Any]) -> dict[str, float]:
    return {key: v for key, v in row.items() if is_score(key) and not key.endswith("_std")}


def _interval_table(found: Interval | None) -> dict[str, float | int | None] | None:
    if found is None:
        return None
    half = None if math.isnan(found.half_width) else found.half_width
    return {"mean": found.mean, "half": half, "count": found.count}
