"""How much more often cells answer a task's examples correctly than others do.

The margins are those of `foreword.evaluation.margins`, over examples and seeds: of pretraining if
there are several, else of fine-tuning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foreword.evaluation.margins import Margin, margin
from foreword.types import Array

PRETRAINED, SCRATCH = "pretrained", "from scratch"


@dataclass(frozen=True)
class CorrectAnswers:
    """How far examples of a task were answered correctly.

    Attributes:
        cell: name of the cell; "" for a baseline.
        seed: seed of pretraining; 0 without.
        task: name of the task.
        start: pretrained, from scratch, or the name of a baseline.
        correct: by each seed of fine-tuning, (seeds, examples) float64, nan if it diverged.
    """

    cell: str
    seed: int
    task: str
    start: str
    correct: Array


def to_lines(correct: Array) -> list[str]:
    """Return what answers were worth as text, a line for each seed; one that diverged is empty."""
    return ["" if np.isnan(seed).any() else " ".join(f"{x:g}" for x in seed) for seed in correct]


def from_lines(lines: Sequence[str]) -> Array:
    """Return what `to_lines` wrote."""
    width = max(len(line.split()) for line in lines)
    nothing = ["nan"] * width
    return np.array([line.split() or nothing for line in lines], np.float64)


def margins(
    answers: Sequence[CorrectAnswers], cell: str, task: str, first: str
) -> Mapping[str, Margin]:
    """Return the margins of a pretrained cell on a task, by what they are over.

    Over the same network from scratch, over each baseline, and over the first cell.

    Args:
        answers: all that is known.
        cell: name of the cell.
        task: name of the task.
        first: name of the first cell.
    """
    mine = correct_of(answers, cell, task, PRETRAINED)
    if mine is None:
        return {}
    baselines = dict.fromkeys(one.start for one in answers if one.task == task and not one.cell)
    others = {
        SCRATCH: correct_of(answers, cell, task, SCRATCH),
        **{name: correct_of(answers, "", task, name) for name in baselines},
        **({} if cell == first else {first: correct_of(answers, first, task, PRETRAINED)}),
    }
    seeds = {one.seed for one in answers if (one.cell, one.task) == (cell, task) and one.seed}
    # A seed of fine-tuning draws the same examples for all; one of pretraining has no partner.
    is_paired = len(seeds) == 1
    return {
        name: margin(cell, mine, name, other, is_paired=is_paired)
        for name, other in others.items()
        if other is not None and mine.shape[1] > 1
    }


def correct_of(answers: Sequence[CorrectAnswers], cell: str, task: str, start: str) -> Array | None:
    """Return how far each seed answered each example correctly; None if it is not known.

    With several seeds of pretraining it is the mean of each one's fine-tunings.
    """
    known = [
        one.correct for one in answers if (one.cell, one.task, one.start) == (cell, task, start)
    ]
    if not known or len(known) == 1:
        return known[0] if known else None
    return np.stack([np.nanmean(correct, axis=0) for correct in known])
