"""Candidates chosen, or averaged, by cross-validation on the training examples alone.

Each candidate answers every training example once, having learned from others (out of fold). The
chosen weights are those of the average that predicts these answers best, by cross-entropy (squared
error for numbers): noise of a few hundred labels moves it less than accuracy. Nothing else is read,
so with shuffled labels the choice is at chance.

Reference: Wolpert 1992 and Breiman 1996 for stacking with weights that are shares.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import KFold, StratifiedKFold

from foreword.errors import TrainingStoppedError, UserError
from foreword.settings import kinds
from foreword.tuning.best.averages import average, best_weights, comparable, temperature_of
from foreword.tuning.best.material import Material
from foreword.tuning.candidates._contract import Fitted, Learner
from foreword.tuning.finished import NOWHERE, OUTPUTS, FinishedStore
from foreword.tuning.tasks._contract import Task
from foreword.types import Array

FOLDS, FOLDS_OF_MANY, MANY = 5, 3, 1_000  # examples from which fewer folds are enough
LEAST_WEIGHT = 0.1  # a smaller part of the average is left out
KEPT = ("scores", "temperature", "seconds")  # of a trial, beside its outputs


@dataclass(frozen=True)
class CandidateTrial:
    """A candidate that was tried.

    Attributes:
        outputs: its outputs for the training examples, each by a fit without it; None if it was
            not tried to the end.
        temperature: what its logits are divided by, fitted on them; 1 for numbers.
        seconds: what all folds took.
        weight: its part of the average.
    """

    candidate: Learner
    outputs: Array | None = None
    scores: dict[str, float] = field(default_factory=dict)
    temperature: float = 1.0
    seconds: float = 0.0
    why_not: str = ""
    weight: float = 0.0


@dataclass(frozen=True)
class ChosenPart:
    """A candidate that is part of the chosen average, fitted on all training examples.

    Attributes:
        name: the name of its kind.
        weight: its part of the average.
        temperature: what its logits are divided by.
    """

    name: str
    fitted: Fitted
    weight: float
    temperature: float


def _find(finished: FinishedStore, candidate: Learner, name: str) -> CandidateTrial | None:
    def read(about: Mapping[str, Any], folder: Path) -> CandidateTrial:
        kept = {name: about[name] for name in KEPT}
        return CandidateTrial(candidate, finished.outputs(folder), **kept)

    return finished.find(name, read)


def _save(finished: FinishedStore, trial: CandidateTrial, name: str) -> None:
    if trial.outputs is not None:
        outputs = torch.from_numpy(np.ascontiguousarray(trial.outputs))
        about = {name: getattr(trial, name) for name in KEPT}
        finished.save(name, about, {OUTPUTS: {OUTPUTS: outputs}})


def try_candidates(
    material: Material,
    candidates: Sequence[Learner],
    seconds: float,
    seed: int,
    report: Callable[..., None] = lambda *_: None,
    finished: FinishedStore = NOWHERE,
) -> list[CandidateTrial]:
    """Cross-validate each candidate, and return them with their weights in the average.

    Args:
        candidates: the candidates, the cheapest first; the first one is always tried.
        seconds: a candidate that would not be done by then is left out, fitting it on all
            examples included.
        seed: seed of the folds and of what is drawn.
        report: called with the candidates done, their number and the name of the current one.
        finished: keeps finished trials, so that a call that was interrupted does not repeat them.

    Raises:
        UserError: no candidate suits the task.
    """
    end = time.monotonic() + seconds
    trials: list[CandidateTrial] = []
    for number, candidate in enumerate(candidates):
        report(number, len(candidates), candidate.title)
        left = end - time.monotonic() if number else np.inf
        name = f"seed {seed} {kinds.name_of(candidate)}"
        if (trial := _find(finished, candidate, name)) is None:
            trial = _tried(material, candidate, left, seed)
            _save(finished, trial, name)
        trials.append(trial)
        # What was tried has to be fitted on all examples.
        end -= trial.seconds / _fold_count(len(material)) if not trial.why_not else 0
    return weighted(material, trials)


def _fold_count(examples: int) -> int:
    return FOLDS if examples < MANY else FOLDS_OF_MANY


def _tried(material: Material, candidate: Learner, seconds: float, seed: int) -> CandidateTrial:
    """Return a candidate with its outputs out of fold, unless it would take too long."""
    why_not = candidate.misplaced(material) or candidate.unsuited(material)
    why_not = why_not or ("" if seconds > 0 else "no time is left")
    if why_not:
        return CandidateTrial(candidate, why_not=why_not)
    start = time.monotonic()
    folds = _folds(material, seed)
    outputs: Array | None = None
    for number, (train, held) in enumerate(folds):
        try:
            fitted = candidate.fit(material.part(train), seed)
        except (TrainingStoppedError, UserError, ValueError) as error:
            # A fold may lack words, or all labels but one; other candidates may still learn.
            return CandidateTrial(candidate, why_not=str(error).splitlines()[0])
        if len(held):
            of_fold = fitted.outputs(material.part(held))
            if outputs is None:
                outputs = np.zeros((int(material.begins[-1]), of_fold.shape[1]))
            outputs[material.outputs_of(held)] = of_fold
        spent = time.monotonic() - start
        needed = spent / (number + 1) * (len(folds) + 1)
        if needed > seconds:
            why = f"would take {needed / 60:.1f} min of {max(seconds, 0) / 60:.1f} min left"
            return CandidateTrial(candidate, seconds=spent, why_not=why)
    assert outputs is not None
    scores = settled(material, outputs).judge.scores(outputs, material.judged)
    temperature = temperature_of(material, outputs)
    return CandidateTrial(candidate, outputs, scores, temperature, time.monotonic() - start)


def _folds(material: Material, seed: int) -> list[tuple[Array, Array]]:
    """Return for each fold the examples to learn from, and those to answer.

    A label of one example alone is always learned from.
    """
    count, rows = _fold_count(len(material)), np.arange(len(material))
    if len(material) < count:
        raise UserError(
            f"strategy best, the default: {len(material)} training examples are too few to choose "
            f"on, which needs {count}; name another, such as --strategy full"
        )
    if material.form == "sets" or not material.task.judge.has_classes:
        return list(KFold(count, shuffle=True, random_state=seed).split(rows))
    labels = np.asarray([example.label for example in material.examples])
    _, which, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    is_single = (sizes == 1)[which]
    often = np.flatnonzero(~is_single)
    if not len(often):
        raise UserError(
            "strategy best, the default: each label has a single example, and none is left to "
            "choose on; name another, such as --strategy full"
        )
    folds = StratifiedKFold(min(count, int(sizes.max())), shuffle=True, random_state=seed)
    single = np.flatnonzero(is_single)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of labels rarer than folds
        splits = list(folds.split(often, which[often]))
    return [
        (np.sort(np.concatenate([often[train], single])), often[held]) for train, held in splits
    ]


def weighted(material: Material, trials: Sequence[CandidateTrial]) -> list[CandidateTrial]:
    """Return the trials with the weights of the best average; small ones are left out."""
    tried = [n for n, trial in enumerate(trials) if trial.outputs is not None]
    if not tried:
        reasons = "; ".join(f"{trial.candidate.title}: {trial.why_not}" for trial in trials)
        raise UserError(f"strategy best: no candidate could be tried ({reasons})")
    shares = [
        comparable(trial.outputs, trial.temperature, material)
        for trial in trials
        if trial.outputs is not None
    ]
    kept = list(range(len(shares)))
    while True:
        weights = best_weights([shares[k] for k in kept], material)
        strong = [k for k, weight in zip(kept, weights, strict=True) if weight >= LEAST_WEIGHT]
        if len(strong) == len(kept) or not strong:
            break
        kept = strong
    found = {tried[k]: float(weight) for k, weight in zip(kept, weights, strict=True)}
    return [replace(trial, weight=found.get(n, 0.0)) for n, trial in enumerate(trials)]


def averaged_trials(material: Material, trials: Sequence[CandidateTrial]) -> Array:
    """Return the average of the trials with weights, out of fold."""
    parts = [
        (comparable(trial.outputs, trial.temperature, material), trial.weight)
        for trial in trials
        if trial.outputs is not None and trial.weight > 0
    ]
    return average(parts, material)


def settled(material: Material, outputs: Array) -> Task:
    """Return the task with the thresholds of its answers that outputs out of fold decide.

    Classes have the temperatures of the parts and need none of their own.
    """
    settings = answer_settings(material.task, outputs, material.judged)
    if material.form == "classes":
        settings.pop("temperature", None)
    return replace(material.task, **settings)


def answer_settings(task: Task, outputs: Array, targets: Any) -> dict[str, Any]:
    """Return the settings that make answers of outputs, chosen or fitted on these."""
    return {**task.judge.chosen(outputs, targets), **task.answers.fitted(outputs, targets)}


def fit_parts(
    material: Material, trials: Sequence[CandidateTrial], seed: int, report: Callable[..., None]
) -> list[ChosenPart]:
    """Fit what is in the average on all training examples."""
    chosen = [trial for trial in trials if trial.weight > 0]
    parts = []
    for number, trial in enumerate(chosen):
        report(number, len(chosen), f"{trial.candidate.title}, on all examples")
        assert trial.outputs is not None
        settings = answer_settings(material.task, trial.outputs, material.judged)
        fitted = trial.candidate.fit(material, seed).answering(settings)
        name = kinds.name_of(trial.candidate)
        parts.append(ChosenPart(name, fitted, trial.weight, trial.temperature))
    return parts
