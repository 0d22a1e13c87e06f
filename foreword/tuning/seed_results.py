"""What the seeds of a fine-tuning answered, and what a reader has to know of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from foreword.tuning.scores import WHY_UNDEFINED, Scores, as_gain, metric_name
from foreword.tuning.settings import TuneSettings
from foreword.tuning.tasks._contract import Confusion, Task
from foreword.types import Array


class SeedResult(NamedTuple):
    """The result of fine-tuning with one seed.

    Attributes:
        final: the scores of the epoch that was kept, with the scores on extra examples; none, and
            `diverged` in `about`, if training stopped.
        task: the task with what that epoch's outputs chose.
        confusion: how often each label (row) got each answer (column) then; None without classes.
        correct: how far each dev example was answered correctly then, 0 to 1; None unless the mean
            is the accuracy.
        outputs: the outputs for the dev examples then, (outputs, labels), if something is fitted on
            them; else None.
    """

    curve: list[Scores]
    final: Scores
    task: Task
    confusion: Confusion | None = None
    correct: list[float] | None = None
    outputs: Array | None = None

    @property
    def has_diverged(self) -> bool:
        """Whether training stopped, so that `final` has no scores."""
        return "diverged" in self.final.about


def added_confusion(matrices: Sequence[Confusion | None]) -> Confusion | None:
    """Return the confusion of all seeds together; None without classes."""
    known = [matrix for matrix in matrices if matrix is not None]
    summed: Confusion | None = np.sum(known, axis=0).tolist() if known else None
    return summed


def correct_of(results: Sequence[Sequence[SeedResult]], *, are_folds: bool) -> dict[str, Array]:
    """Return how far each variant's seeds answered correctly, of variants with other names.

    Those of folds answer all examples together, as one seed does.
    """
    correct: dict[str, Array] = {}
    for runs in results:
        if are_folds:
            parts = [result.correct for result in runs if result.correct is not None]
            if len(parts) == len(runs):
                correct.setdefault(runs[0].final.name, np.concatenate(parts)[None])
        elif sizes := [len(result.correct) for result in runs if result.correct is not None]:
            nothing = [math.nan] * sizes[0]  # of a seed that diverged
            known = [nothing if result.correct is None else result.correct for result in runs]
            correct.setdefault(runs[0].final.name, np.array(known))
    return correct


def notes_of(
    results: Sequence[Sequence[SeedResult]],
    baselines: Sequence[Scores],
    settings: TuneSettings,
    task: Task,
) -> list[str]:
    """Return what a reader of the scores has to know of the seeds, a line each."""
    finals = [result.final for result in results[0] if not result.has_diverged]
    notes = []
    for runs in results:
        if failed := [result.final for result in runs if result.has_diverged]:
            seeds = ", ".join(str(final.about["seed"]) for final in failed)
            notes.append(
                f"{failed[0].name}: {len(failed)} of {len(runs)} seeds diverged (seed {seeds}) and "
                f"are not in the scores; the first: {failed[0].about['diverged']}"
            )
    notes += _undefined_notes(results)
    if settings.keep == "best":
        name = metric_name(finals[0].chosen_metric(settings.metric))
        notes.append(
            f"each seed kept the best of its epochs by {name} on the dev examples, which is "
            "therefore a little too high; score others too, with --test, for a number to report"
        )
    noun = "folds" if settings.folds else "seeds"
    return [*notes, *_stuck_notes(finals, baselines, settings.metric, task, noun)]


def _undefined_notes(results: Sequence[Sequence[SeedResult]]) -> list[str]:
    """Return a line for each variant of which some seeds have scores that are undefined."""
    notes = []
    for runs in results:
        finals = [result.final for result in runs if not result.has_diverged]
        undefined = [{k for k, score in row.means.items() if math.isnan(score)} for row in finals]
        if any(undefined):
            names = [metric_name(k) for k in finals[0].metrics if k in set().union(*undefined)]
            seeds = [str(f.about["seed"]) for f, of in zip(finals, undefined, strict=True) if of]
            notes.append(
                f"{finals[0].name}: {', '.join(names)} undefined for {len(seeds)} of "
                f"{len(finals)} seeds ({', '.join(seeds)}), {WHY_UNDEFINED}; so is the mean over "
                "seeds"
            )
    return notes


def _stuck_notes(
    finals: Sequence[Scores],
    baselines: Sequence[Scores],
    metric: str,
    task: Task,
    noun: str = "seeds",
) -> list[str]:
    """Return a line that says how many seeds were no better than the best baseline, if some."""
    name = finals[0].chosen_metric(metric)

    def gain(row: Scores) -> float:
        # Where a baseline's correlation is undefined, as of a constant, none above 0 was learned.
        return as_gain(name, float(np.nan_to_num(row[name])), task)

    known = [row for row in baselines if name in row.metrics]
    best = max(known, key=gain, default=None)
    if best is None:
        return []
    gains = {row.about["seed"]: as_gain(name, row[name], task) for row in finals}
    stuck = [seed for seed, reached in gains.items() if -math.inf < reached <= gain(best)]
    if not stuck:
        return []
    seeds = ", ".join(map(str, stuck))
    which = (
        f"{len(stuck)} of {len(finals)} {noun} ({seeds}) are"
        if len(finals) > 1
        else "the one seed is"
    )
    cause = "likely --lr is too high, training is too short, or pretraining has barely begun"
    return [f"{which} no better than '{best.strategy}' by {metric_name(name)}; {cause}"]
