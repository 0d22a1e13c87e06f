"""What is fitted on examples that were not trained on: probabilities, thresholds, fold scores.

Holding them out of every training would take a tenth of the labels from the saved model, so one
more network is trained on the rest, and its fits are given to those trained on all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foreword.tuning.calibration import BINS
from foreword.tuning.drawing import HELD_FEWEST, HELD_PARTS
from foreword.tuning.encoding import Draw, TuneData
from foreword.tuning.fine_tuner import SeedResult
from foreword.tuning.scores import MeanScore
from foreword.tuning.tasks._contract import Task
from foreword.types import Array


@dataclass(frozen=True)
class HeldOutFit:
    """Examples that were not trained on, and the outputs for them.

    Attributes:
        outputs: (outputs, labels).
        targets: what `Task.targets` returned.
        folds: the fold of each output, (outputs,) int64.
    """

    outputs: Array
    targets: Any
    folds: Array

    @classmethod
    def of(
        cls, data: TuneData, draws: Sequence[Draw], results: Sequence[SeedResult]
    ) -> HeldOutFit | None:
        """Return those of one or more trainings; None without outputs."""
        parts = [
            (draw, result.outputs)
            for draw, result in zip(draws, results, strict=True)
            if result.outputs is not None
        ]
        if not parts:
            return None
        held = [int(n) for draw, _ in parts if draw.held is not None for n in draw.held]
        outputs = [outputs for _, outputs in parts]
        return cls(
            np.concatenate(outputs),
            data.pack([data.drawn.examples[n] for n in held]).targets,
            np.repeat(np.arange(len(parts)), list(map(len, outputs))),
        )

    def fitted(self, task: Task, but: int = -1) -> Mapping[str, Any]:
        """Return what a task's answers fit on them, but for those of one fold."""
        if not task.answers.fits:
            return {}
        others = self.folds != but
        return task.answers.fitted(self.outputs[others], self.targets[others])


def cross_fitted(
    task: Task, held: HeldOutFit, results: Sequence[SeedResult]
) -> tuple[list[SeedResult], tuple[float, float]]:
    """Return folds scored with what the other folds fit, and the calibration errors.

    Args:
        task: whose answers fit something.

    Returns:
        The results, and the expected calibration error of all outputs before and after.
    """
    scored, scaled, number = [], held.outputs.copy(), -1
    for result in results:
        if result.outputs is None:
            scored.append(result)
            continue
        number += 1
        is_in = held.folds == number
        settings = held.fitted(task, number if held.folds[-1] else -1)
        own, targets = replace(task, **settings), held.targets[is_in]
        scores = own.judge.scores(result.outputs, targets)
        final = replace(result.final, metrics={k: MeanScore(v) for k, v in scores.items()})
        correct = own.judge.correct(result.outputs, targets)
        scored.append(
            result._replace(
                final=final,
                confusion=own.judge.confusion(result.outputs, targets),
                correct=None if correct is None else correct.tolist(),
            )
        )
        scaled[is_in] /= settings.get("temperature", 1.0)
    error = task.answers.calibration_error
    return scored, (error(held.outputs, held.targets), error(scaled, held.targets))


def calibration(
    fitted: Mapping[str, Any], examples: int, errors: Sequence[float], *, on: str
) -> dict[str, Any]:
    """Return what was fitted and how it changes the error, as the file of the scores holds it.

    Args:
        examples: the number of examples that it was fitted on.
        errors: the expected calibration error before and after, on examples to score.
        on: what the first were: examples "held out", or all of them in "folds".
    """
    before, after = errors
    about = {"on": on, "examples": examples, "error_before": before, "error": after}
    return {**fitted, **about, "bins": BINS}


def not_calibrated(train: int | None) -> str:
    """Return a note that probabilities are not calibrated.

    Args:
        train: the number of training examples, if they are too few; None if training diverged.
    """
    why = "the training for it diverged"
    if train is not None:
        why = (
            f"{train:,} training examples are too few to hold some out, which needs "
            f"{HELD_FEWEST * HELD_PARTS:,}; --folds 5 in place of --dev calibrates on all of them"
        )
    return f"probabilities are not calibrated: {why}"
