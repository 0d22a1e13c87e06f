"""The results of a comparison, read from its folder: runs, scores, failures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy import stats

from foreword.comparison.compute import BATCHES
from foreword.comparison.grid import Cell, GridTask
from foreword.comparison.jobs import BAG_OF_WORDS, Job
from foreword.comparison.margins import (
    PRETRAINED,
    SCRATCH,
    CorrectAnswers,
    correct_of,
    from_lines,
    margins,
)
from foreword.comparison.probing import MODEL, RANDOM, GridProbe, GridText
from foreword.comparison.run import Comparison
from foreword.comparison.sweep import Trial
from foreword.disk import stored
from foreword.errors import UserError
from foreword.evaluation.margins import Margin
from foreword.evaluation.statistics import (
    LEVEL,
    Interval,
    Signal,
    Spread,
    interval,
    signal,
    spreads_on_same_items,
)
from foreword.runs.provenance import read_state
from foreword.settings import config
from foreword.train import checkpoint, log
from foreword.tuning.scores import Scores
from foreword.tuning.tasks._contract import BOUND
from foreword.types import Array

Measure = GridTask | GridProbe | GridText
# The largest variance of a metric on one example; divided by their number, that of a score. Of
# Matthews' and the correlation coefficients, this is the variance where there is no correlation.
PER_EXAMPLE = {"accuracy": 0.25, "matthews": 1.0, "pearson": 1.0, "spearman": 1.0}


@dataclass(frozen=True)
class Axis:
    """The x axis of the curves: the budget, which all cells have in common.

    Attributes:
        label: label of the axis.
        key: key in the records of a run.
        unit: amount of `key` that is 1 on the axis.
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
    """The result of a finished pretraining.

    Attributes:
        cell: name of the cell.
        seed: seed of pretraining.
        run: the run folder.
        parameters: number of the model's parameters, heads included.
        bytes: size of the checkpoint on disk, without what only resuming needs.
        memory: bytes that training takes at least, counted: weights, gradients, optimizer and the
            activations of a row.
        steps: number of steps.
        tokens: tokens read.
        flops: FLOPs of training.
        seconds: training time, evaluation included.
        tokens_per_second: median of those logged.
        heldout_loss: nats per prediction of the cell's own objective, at the end.
        perplexity: per token, if the model predicts all of the text; else None.
        bits_per_byte: if the model predicts all of the text; else None.
        curve: (amount spent, held-out loss) at each evaluation; see `Axis`.
        samples: samples at the end, `{"prompt": ..., "text": ...}` each.
        is_bound: whether loss, perplexity and bits per byte are upper bounds of the text's own.
        token_loss: the part of the held-out loss that predicts tokens; all of it but of a sum.
        unigram: that of predicting each of them by its frequency; None where none compares, see
            `baselines.unigram_loss`.
        epochs: how often the training text was read.
    """

    cell: str
    seed: int
    run: str
    parameters: int
    bytes: int
    memory: int
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
    is_bound: bool = False
    token_loss: float | None = None
    unigram: float | None = None
    epochs: float | None = None


NUMBERS = (
    "parameters",
    "bytes",
    "memory",
    "tokens",
    "flops",
    "seconds",
    "tokens_per_second",
    "heldout_loss",
    "perplexity",
    "bits_per_byte",
)
LOSSES = ("heldout_loss", "perplexity", "bits_per_byte")  # upper bounds where `is_bound`


@dataclass(frozen=True)
class TuningScore:
    """The scores of one fine-tuning on the dev examples, or of one probe.

    Attributes:
        cell: name of the cell; "" for a baseline.
        seed: seed of pretraining; 0 of a fine-tuning from scratch.
        task: name of the task or probe.
        start: pretrained, from scratch (of a probe: random weights), or the name of a baseline.
        tuning_seed: seed of fine-tuning; 0 without fine-tuning.
        scores: score by metric.
        items: deviation over the items that the score is a mean of, and their number; None where
            they are not known.
    """

    cell: str
    seed: int
    task: str
    start: str
    tuning_seed: int
    scores: dict[str, float]
    items: tuple[float, int] | None = None


@dataclass(frozen=True)
class Results:
    """The results of a comparison.

    Attributes:
        comparison: the comparison.
        runs: results of the finished pretrainings.
        scores: scores of the finished probes, fine-tunings (one per seed) and baselines.
        dev: number of dev examples by name of the task.
        trials: finished trials of the cells' sweeps.
        answers: how far fine-tunings and baselines answered dev examples correctly, of tasks whose
            score is an accuracy.
        batches: (batches, 2) sum in nats and predictions on pieces of held-out text, of each cell's
            first seed, by the names of the cell and of the `GridText`; "" for the run's own text.
    """

    comparison: Comparison
    runs: Sequence[RunResult]
    scores: Sequence[TuningScore]
    dev: Mapping[str, int] = field(default_factory=dict)
    trials: Sequence[Trial] = ()
    answers: Sequence[CorrectAnswers] = ()
    batches: Mapping[tuple[str, str], Array] = field(default_factory=dict)

    @property
    def axis(self) -> Axis:
        """The x axis of the curves."""
        assert self.comparison.grid.budget is not None
        return AXES[self.comparison.grid.budget.unit]

    @property
    def is_one_objective(self) -> bool:
        """Whether all runs predict all of one text, so that their losses are comparable.

        Upper bounds and exact losses are not.
        """
        predict_all = all(run.bits_per_byte is not None for run in self.runs)
        predict_all &= len({run.is_bound for run in self.runs}) < 2
        return predict_all and not self.comparison.grid.sources

    def trials_of(self, cell: Cell) -> list[Trial]:
        """Return the finished trials of a cell's sweep."""
        return [trial for trial in self.trials if trial.cell == cell.name]

    def best(self, cell: Cell) -> Trial | None:
        """Return the trial whose values a cell's runs have; None without a finished sweep."""
        is_swept = any(trial.cell == cell.name for trial in self.trials)
        return self.comparison.trials.best(cell) if is_swept else None

    def cell_interval(self, cell: Cell, key: str) -> Interval | None:
        """Return the interval of a number of a cell's runs, over the seeds that have it."""
        values = [getattr(run, key) for run in self.runs if run.cell == cell.name]
        available = [value for value in values if value is not None]
        return interval(available) if available else None

    def is_bound(self, cell: Cell, measure: Measure | None = None) -> bool:
        """Return whether the losses of a cell's runs, or its scores, are upper bounds."""
        is_loss = isinstance(measure, GridText | None) or self.metric(measure) == BOUND
        return is_loss and any(run.is_bound for run in self.runs if run.cell == cell.name)

    def ranked(self, measure: Measure | None = None) -> list[Cell]:
        """Return the cells whose losses, or scores, rank each other: exact ones, or all bounds."""
        cells = self.comparison.grid.cells
        bounds = {cell.name for cell in cells if self.is_bound(cell, measure)}
        has_exact = any(run.cell not in bounds for run in self.runs)
        return [cell for cell in cells if not (has_exact and cell.name in bounds)]

    def metric(self, task: Measure) -> str:
        """Return the metric shown for a task: its own or the first known; "" if none is."""
        scores = [score.scores for score in self.scores if score.task == task.name]
        return task.metric or (next(iter(scores[0]), "") if scores else "")

    def task_interval(self, cell: str, task: Measure, start: str) -> Interval | None:
        """Return the interval of a cell's scores on a task; None if there are none."""
        values = self.task_values(cell, task, start)
        return interval(values) if values else None

    def task_values(self, cell: str, task: Measure, start: str) -> list[float]:
        """Return a cell's scores on a task, as `values_of`."""
        return list(self.values_by_seed(cell, task, start).values())

    def values_by_seed(self, cell: str, task: Measure, start: str) -> dict[int, float]:
        """Return a cell's scores on a task by seed, as `values_of`."""
        return values_of(self.scores, (cell, task.name, start), self.metric(task))

    def spreads(self, task: Measure) -> list[Spread]:
        """Return the spread of each pretrained cell's scores on a task, over seeds."""
        cells = [self.task_values(c.name, task, PRETRAINED) for c in self.ranked(task)]
        known = [[value for value in values if not math.isnan(value)] for values in cells]
        return [Spread.of(values) for values in known if values]

    def signals(self) -> dict[str, Signal | None]:
        """Return the signal to noise of each measure: over seeds or, with one, over its items."""
        found = {}
        for measure in self.comparison.grid.measures:
            by_seeds = self.spreads(measure)
            has_seeds = any(one.count > 1 for one in by_seeds)
            found[measure.name] = signal(by_seeds if has_seeds else self.over_items(measure))
        return found

    def over_items(self, task: Measure) -> list[Spread]:
        """Return the spread of each cell's score over dev examples or questions, with one seed."""
        metric = self.metric(task)
        answers = [
            one.correct[0]
            for one in self.answers
            if one.cell and (one.task, one.start) == (task.name, PRETRAINED)
            if not np.isnan(one.correct).any()
        ]
        if metric == "accuracy" and answers:
            return spreads_on_same_items(np.stack(answers))
        count, variance = self.dev.get(task.name, 0), PER_EXAMPLE.get(metric)
        over_dev = (math.sqrt(variance), count) if count and variance else None
        return [
            Spread(one.scores[metric], *items)
            for one in self.scores
            if one.cell and (one.task, one.start) == (task.name, PRETRAINED)
            if (items := one.items or over_dev) is not None
        ]

    def margins(self, cell: Cell, task: GridTask) -> Mapping[str, Margin]:
        """Return the margins of a cell on a task, by what they are over."""
        if self.metric(task) != "accuracy":
            return {}
        return margins(self.answers, cell.name, task.name, self.comparison.grid.cells[0].name)

    def correct(self, cell: str, task: GridTask) -> Array | None:
        """Return how far each seed of a cell answered each example correctly, if it is known."""
        return correct_of(self.answers, cell, task.name, PRETRAINED)

    def as_json(self) -> dict[str, Any]:
        """Return all numbers as JSON values."""
        failures = [
            {"work": str(failure.job), "error": failure.error, "is_fault": failure.is_fault}
            for failure in self.comparison.failures
        ]
        return {
            "grid": config.to_table(self.comparison.grid),
            "axis": self.axis.label,
            "is_one_objective": self.is_one_objective,
            "dev": dict(self.dev),
            "metrics": {
                measure.name: self.metric(measure) for measure in self.comparison.grid.measures
            },
            "cells": [self._cell(cell) for cell in self.comparison.grid.cells],
            "trials": [asdict(trial) for trial in self.trials],
            "runs": [asdict(run) for run in self.runs],
            "scores": [asdict(score) for score in self.scores],
            "margins": [
                {"task": task.name, **asdict(one)}
                for task in self.comparison.grid.tasks
                for cell in self.comparison.grid.cells
                for one in self.margins(cell, task).values()
            ],
            "signals": {name: one and asdict(one) for name, one in self.signals().items()},
            "failures": failures,
        }

    def _cell(self, cell: Cell) -> dict[str, Any]:
        numbers = {key: _interval_table(self.cell_interval(cell, key)) for key in NUMBERS}
        tasks = {
            task.name: {
                start: _interval_table(self.task_interval(cell.name, task, start))
                for start in ("pretrained", "from scratch")
            }
            for task in self.comparison.grid.measures
        }
        names: dict[str, Any] = {"cell": cell.name, "recipe": cell.recipe}
        best = self.best(cell)
        names |= {"best": dict(best.values)} if best else {}
        return {**names, **numbers, "tasks": tasks}


def values_of(
    scores: Sequence[TuningScore], of: tuple[str, str, str], metric: str
) -> dict[int, float]:
    """Return a cell's scores on a task by seed.

    With several seeds of pretraining there is one for each, the mean of its fine-tunings; with one
    there is one for each seed of fine-tuning.

    Args:
        scores: all scores.
        of: the names of the cell and the task, and the start.
        metric: the metric.
    """
    by_seed: dict[int, dict[int, float]] = {}
    for score in scores:
        if (score.cell, score.task, score.start) == of:
            by_tuning = by_seed.setdefault(score.seed, {})
            by_tuning[score.tuning_seed] = score.scores.get(metric, math.nan)
    if len(by_seed) == 1:
        return next(iter(by_seed.values()))
    return {seed: sum(one.values()) / len(one) for seed, one in by_seed.items()}


def gather(comparison: Comparison) -> Results:
    """Read the results of a comparison's finished jobs."""
    runs, scores = [], []
    answers: list[CorrectAnswers] = []
    batches: dict[tuple[str, str], Array] = {}
    dev: dict[str, int] = {}
    for job in comparison.jobs():
        if job.planned is not None:
            continue
        if job.is_pretraining:
            run = comparison.run_folder(job.cell, job.seed)
            if run is not None and comparison.seconds_taken(job) is not None:
                runs.append(_run_result(comparison, job, run))
                if job.seed == 1 and (run / BATCHES).is_file():
                    batches[job.cell.name, ""] = np.array(stored.read(run / BATCHES)["batches"])
            continue
        saved = comparison.saved(job)
        if saved is None:
            continue
        if job.task is None:
            scores += _probe_scores(job, saved)
            if job.seed == 1 and job.probe is not None and "batches" in saved:
                batches[job.cell.name, job.probe.name] = np.array(saved["batches"])
            continue
        answers += _answers(job, job.task, saved)
        if job.is_baseline:
            scores += [
                TuningScore("", 0, job.task.name, BAG_OF_WORDS, number, _metrics(row))
                for number, row in enumerate(saved["rows"], 1)
            ]
            continue
        scores += _tuning_scores(job, job.task, saved["epochs"])
        if job.task.name not in dev:
            dev[job.task.name] = saved["examples"]["dev"]
            scores += [  # the chance baseline, alike in all fine-tunings of a task
                TuningScore("", 0, job.task.name, row["strategy"], 0, _metrics(row))
                for row in saved["rows"]
                if row["start"] == "no model"
            ]
    trials = [trial for cell in comparison.grid.cells for trial in comparison.trials.of(cell)]
    return Results(comparison, runs, scores, dev, trials, answers, batches)


def _run_result(comparison: Comparison, job: Job, run: Path) -> RunResult:
    """Read the result of a finished run from its newest checkpoint and its log."""
    assert comparison.grid.budget is not None
    axis = AXES[comparison.grid.budget.unit]
    folder = checkpoint.newest(run, [])
    spent = checkpoint.read_state(folder)["spent"]
    records: dict[str, list[dict[str, Any]]] = {"train": [], "heldout": [], "samples": []}
    if not (logged := log.read(run)):
        raise UserError(f"{run / log.FILE}: is missing or empty; delete {run} to train it again")
    for record in logged:
        records.setdefault(record["kind"], []).append(record)
    rates = [record["tokens_per_second"] for record in records["train"]]
    heldout = records["heldout"]
    last = heldout[-1] if heldout else dict.fromkeys(("loss", "perplexity", "bits_per_byte"))
    predicts_all = last["bits_per_byte"] is not None
    component = comparison.recipes[job.cell.name, job.seed].objective.predicts.component
    state = read_state(run)
    text = state.get("data", {}).get("counts", {}).get("train", {}).get("tokens")
    files = [file for file in folder.iterdir() if not checkpoint.is_training_state(file.name)]
    return RunResult(
        cell=job.cell.name,
        seed=job.seed,
        run=str(run),
        parameters=state["parameters"],
        bytes=sum(file.stat().st_size for file in files),
        memory=comparison.memory_of(job.cell),
        steps=spent["steps"],
        tokens=spent["tokens"],
        flops=spent["flops"],
        seconds=spent["seconds"],
        tokens_per_second=median(rates) if rates else None,
        heldout_loss=last["loss"],
        perplexity=last["perplexity"] if predicts_all else None,
        bits_per_byte=last["bits_per_byte"],
        curve=tuple((r[axis.key] / axis.unit, r["loss"]) for r in heldout if r["loss"] is not None),
        samples=tuple(records["samples"][-1]["samples"]) if records["samples"] else (),
        is_bound=bool(last.get("is_bound")),
        token_loss=last.get(component or "loss"),
        unigram=comparison.unigram_of(job.cell) if heldout else None,
        epochs=spent["tokens"] / text if text else None,
    )


def _probe_scores(job: Job, saved: Mapping[str, Any]) -> list[TuningScore]:
    """Return the scores of a probe: of the model, and of random weights if it has weights.

    The loss on a text is followed by its bits per byte if all of the text is predicted.
    """
    assert job.probe is not None
    starts = {MODEL: "pretrained", RANDOM: "from scratch"}
    bits = saved.get("bits_per_byte")
    more = {} if bits is None else {"bits_per_byte": bits}
    return [
        TuningScore(
            job.cell.name,
            job.seed,
            job.probe.name,
            starts[of],
            0,
            {saved["measure"]: score} | more,
            _items(of, saved),
        )
        for of, score in saved["scores"].items()
        if score is not None
    ]


def _items(of: str, saved: Mapping[str, Any]) -> tuple[float, int] | None:
    """Return the deviation over a suite's questions, from the interval of all, and their number."""
    rows = [row for row in saved["rows"] if row.get("run") == of and row.get("questions")]
    if not rows or rows[-1]["low"] is None:
        return None
    count, width = rows[-1]["questions"], rows[-1]["high"] - rows[-1]["low"]
    error = width / (2 * float(stats.norm.ppf((1 + LEVEL) / 2)))
    return error * math.sqrt(count), count


def _answers(job: Job, task: GridTask, saved: Mapping[str, Any]) -> list[CorrectAnswers]:
    """Return what the answers of a fine-tuning or a baseline were worth, if it is known."""
    if "correct" not in saved:
        return []
    start, seed = SCRATCH if job.is_scratch else PRETRAINED, job.seed
    if job.is_baseline:
        start = BAG_OF_WORDS
    if start != PRETRAINED:
        seed = 0
    cell = "" if job.is_baseline else job.cell.name
    return [CorrectAnswers(cell, seed, task.name, start, from_lines(saved["correct"]))]


def _tuning_scores(job: Job, task: GridTask, epochs: Sequence[dict[str, Any]]) -> list[TuningScore]:
    """Return the scores of each seed's last epoch."""
    last = max(row["epoch"] for row in epochs)
    start, seed = (SCRATCH, 0) if job.is_scratch else (PRETRAINED, job.seed)
    return [
        TuningScore(job.cell.name, seed, task.name, start, row["seed"], _metrics(row))
        for row in epochs
        if row["epoch"] == last
    ]


def _metrics(row: dict[str, Any]) -> dict[str, float]:
    """Return the scores of a row, without standard deviations."""
    return Scores.of(row).means


def _interval_table(interval: Interval | None) -> dict[str, float | int | None] | None:
    """Return an interval as JSON values, which have no nan."""
    if interval is None:
        return None
    half = None if math.isnan(interval.half_width) else interval.half_width
    return {"mean": interval.mean, "half": half, "count": interval.count}
