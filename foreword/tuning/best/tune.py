"""Strategy `best`, from a job to a chosen model and its scores on disk."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from foreword.disk import atomic, stored
from foreword.evaluation.calibration import calibration_error
from foreword.runs.provenance import command
from foreword.runs.stages import ProgressReporter
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.tables.examples import LabelledTexts
from foreword.tuning.best import chosen_model
from foreword.tuning.best.choosing import (
    CandidateTrial,
    ChosenPart,
    averaged_trials,
    fit_parts,
    settled,
    try_candidates,
)
from foreword.tuning.best.material import Material, material_of
from foreword.tuning.candidates._contract import Learner
from foreword.tuning.candidates.fine_tuned import FittedNetwork
from foreword.tuning.drawing import DrawnExamples, draw
from foreword.tuning.finished import FinishedStore
from foreword.tuning.job import TuneJob
from foreword.tuning.scores import MeanScore, Scores, as_gain
from foreword.tuning.starting_network import start_name
from foreword.tuning.strategies.best import CANDIDATES, Best
from foreword.tuning.trainings import calibration
from foreword.tuning.tune import baselines, counted
from foreword.tuning.tune_result import TuneScores, as_json, save_network
from foreword.tuning.tuned_folder import TunedOn
from foreword.types import Array

NAME, COUNTING = "best", "counting alone"


def tune_best(trained: TrainedModel, job: TuneJob, display: ProgressReporter) -> dict[str, Any]:
    """Choose among candidates, once per seed, and write the first seed's choice and the scores.

    Args:
        job: what to learn; its first variant has the strategy.

    Returns:
        The scores as they are written.

    Raises:
        UserError: the examples do not fit the task, or are too few.
    """
    assert job.folder is not None and job.evaluation is not None
    settings, task = job.variants[0], job.task
    strategy = settings.strategy
    assert isinstance(strategy, Best)
    candidates: list[Learner] = [
        kinds.load("tuning/candidates", name)() for name in strategy.candidates
    ]
    drawn = draw(job.examples.train, settings.examples, settings.seeds, task)
    examples = LabelledTexts.of(drawn.examples)
    whole = material_of(trained, task, drawn.labels, examples, settings)
    dev = whole.of(LabelledTexts.of(job.examples.dev))
    extra = {name: whole.of(LabelledTexts.of(e)) for name, e in job.examples.extra.items()}
    assert all(part.judged is not None for part in (dev, *extra.values()))  # all labels are known
    assert job.seeds_folder is not None
    finished = FinishedStore(job.seeds_folder, job.request(trained))
    runs: list[_Run] = []
    for seed, numbers in enumerate(drawn.numbers, 1):
        material = whole.part(numbers)
        seconds = strategy.minutes * 60 / settings.seeds
        report = display.stage("choosing" if settings.seeds == 1 else f"choosing, seed {seed}")
        trials = try_candidates(material, candidates, seconds, seed, report, finished)
        parts = fit_parts(material, trials, seed, display.stage("fitting what was chosen"))
        counting = _counting(material, trials, parts, seed)
        runs.append(_Run(material, trials, parts, counting, dev, extra))
    scores = _scores(trained, job, drawn, dev, runs)
    content = as_json(scores, job.name, command()) | {"request": job.request(trained)}
    with atomic.guarded(trained.run):
        _save(job.folder, runs[0], job.examples.tuned_on, content)
        stored.write(job.evaluation, content)
        shutil.rmtree(job.seeds_folder, ignore_errors=True)
    return content


def _save(folder: Path, run: _Run, tuned_on: TunedOn, content: Mapping[str, Any]) -> None:
    """Save an average, or its network as every tuned model if there is nothing else."""
    fitted = run.parts[0].fitted
    if len(run.parts) == 1 and isinstance(fitted, FittedNetwork) and fitted.result is not None:
        save_network(fitted.result, folder, tuned_on, content)
    else:
        chosen_model.save(folder, run.material, run.parts, tuned_on, content)


@dataclass(frozen=True, kw_only=True)
class _ChosenScores(TuneScores):
    """The scores of strategy `best`, with the `candidates` that were tried for the first seed."""


class _Run:
    """What was chosen with a seed, and what it answers."""

    def __init__(
        self,
        material: Material,
        trials: Sequence[CandidateTrial],
        parts: Sequence[ChosenPart],
        counting: ChosenPart | None,
        dev: Material,
        extra: Mapping[str, Material],
    ) -> None:
        task = settled(material, averaged_trials(material, trials))
        self.material, self.trials, self.parts = replace(material, task=task), trials, parts
        judge = task.judge
        self.answers: dict[str, Array] = {NAME: chosen_model.averaged(parts, dev)}
        self.scores = {NAME: judge.scores(self.answers[NAME], dev.judged)}
        for name, part in extra.items():
            of_part = judge.scores(chosen_model.averaged(parts, part), part.judged)
            self.scores[NAME] |= {f"{name}_{metric}": score for metric, score in of_part.items()}
        if counting is not None:
            judge = next(
                settled(material, trial.outputs).judge
                for trial in trials
                if trial.outputs is not None and kinds.name_of(trial.candidate) == counting.name
            )
            self.answers[COUNTING] = counting.fitted.outputs(dev)
            self.scores[COUNTING] = judge.scores(self.answers[COUNTING], dev.judged)


def _counting(
    material: Material, trials: Sequence[CandidateTrial], parts: Sequence[ChosenPart], seed: int
) -> ChosenPart | None:
    """Return the candidate that counts alone and answers best out of fold, fitted."""
    task = material.task
    tried = [
        trial for trial in trials if trial.outputs is not None and not trial.candidate.reads_model
    ]
    if not tried:
        return None
    metric = next(iter(tried[0].scores))
    best = max(tried, key=lambda trial: as_gain(metric, trial.scores[metric], task))
    name = kinds.name_of(best.candidate)
    known = next((part for part in parts if part.name == name), None)
    return known or ChosenPart(name, best.candidate.fit(material, seed), 0.0, best.temperature)


def _scores(
    trained: TrainedModel, job: TuneJob, drawn: DrawnExamples, dev: Material, runs: Sequence[_Run]
) -> _ChosenScores:
    """Return what the runs' choices score together, and what the first one's was."""
    settings, first = job.variants[0], runs[0]
    are_named = getattr(settings.strategy, "candidates", CANDIDATES) != CANDIDATES
    task = first.material.task
    start = start_name(trained)
    rows = [
        Scores(
            start if name == NAME else "no network",
            name,
            {m: MeanScore.of([run.scores[name][m] for run in runs]) for m in first.scores[name]},
            {"seeds": len(runs)} if name == NAME else {},
        )
        for name in first.scores
        if all(name in run.scores for run in runs)
    ]
    correct: dict[str, Array] = {}
    for row in rows:
        answers = [task.judge.correct(run.answers[row.strategy], dev.judged) for run in runs]
        known = [of_run for of_run in answers if of_run is not None]
        correct |= {row.strategy: np.stack(known)} if known else {}
    untrained, known_of = baselines(task, {"": [(first.material.judged, dev.judged)]}, dev.labels)
    read = [first.material.encoded, dev.encoded]
    counts, warning = counted(trained, job, drawn, dev.template, read)
    candidates = [
        {"name": kinds.name_of(trial.candidate), "title": trial.candidate.title}
        | (
            {"left_out": trial.why_not}
            if trial.outputs is None
            else {"weight": trial.weight, "seconds": trial.seconds, **trial.scores}
        )
        for trial in first.trials
        if are_named or not trial.candidate.misplaced(first.material)
    ]
    return _ChosenScores(
        labels=dev.labels,
        max_tokens=dev.template.length,
        rows=[*rows, *untrained],
        settings={
            "task": config.kind_table(task),
            **config.to_table(settings),
            "data": dict(job.examples.about or {}),
        },
        examples=counts,
        notes=(*filter(None, [warning]), *_notes(first), *job.examples.notes),
        confusion=task.judge.confusion(first.answers[NAME], dev.judged),
        correct=correct | known_of,
        further={"candidates": candidates, **_calibration(first, dev)},
    )


def _notes(run: _Run) -> list[str]:
    """Return what a reader of the scores has to know of the choice, a line each."""
    notes = []
    tried = [trial for trial in run.trials if trial.outputs is not None]
    if all(trial.candidate.reads_model for trial in tried):
        notes.append("no candidate counts words alone: there is nothing to be worth more than")
    taken = [kinds.load("tuning/candidates", part.name) for part in run.parts]
    if not any(candidate.reads_model for candidate in taken):
        notes.append("all that was taken counts words: nothing that reads the model added to it")
    return notes


def _calibration(run: _Run, dev: Material) -> dict[str, Any]:
    """Return the expected calibration error on the dev examples, and out of fold before and after.

    Before: without the temperatures. Only classes and sets of labels have probabilities.
    """
    material = run.material
    if dev.form not in ("classes", "sets"):
        return {}
    raw = [replace(trial, temperature=1.0) for trial in run.trials]
    before, after = (averaged_trials(material, trials) for trials in (raw, run.trials))
    errors = _error(replace(material, task=dev.task), before), _error(material, after)
    temperatures = {part.name: part.temperature for part in run.parts}
    about = calibration({"temperatures": temperatures}, len(material), errors, on="folds")
    of_dev = _error(replace(dev, task=material.task), run.answers[NAME])
    return {"calibration_error": of_dev, "calibration": about}


def _error(material: Material, outputs: Array) -> float:
    if material.form == "sets":
        return material.task.answers.calibration_error(outputs, material.judged)
    known = np.flatnonzero(material.targets >= 0)
    return calibration_error(softmax(outputs[known], axis=1), material.targets[known])
