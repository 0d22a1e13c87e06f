"""The jobs of a comparison, and how their progress is reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from foreword.comparison.grid import Cell, GridTask
from foreword.comparison.probing import GridProbe, GridText
from foreword.comparison.sweep import PlannedTrial
from foreword.formatting import rough
from foreword.runs.stages import LOOP_STAGES, TRAINING, ProgressReporter

NO_CELL = Cell("")
BAG_OF_WORDS = "bag of words"


@dataclass(frozen=True)
class Job:
    """A job of the comparison.

    It is a trial of a sweep, a pretraining, a probe or a fine-tuning of its model, or a baseline.

    Attributes:
        cell: the cell of the grid; `NO_CELL` of a baseline.
        seed: seed of pretraining.
        task: the task to fine-tune on; None for the pretraining.
        is_scratch: whether the network is fine-tuned from random weights.
        planned: the place of a trial in its sweep; None for other jobs.
        probe: the probe or the text to measure the model with; None for other jobs.
    """

    cell: Cell
    seed: int
    task: GridTask | None = None
    is_scratch: bool = False
    planned: PlannedTrial | None = None
    probe: GridProbe | GridText | None = None

    @property
    def is_pretraining(self) -> bool:
        """Whether it is a pretraining, a seed of its cell."""
        return self.task is None and self.planned is None and self.probe is None

    @property
    def is_baseline(self) -> bool:
        """Whether it is a bag of words on a task."""
        return self.cell == NO_CELL

    def __str__(self) -> str:
        if self.planned is not None:
            return f"{self.cell.name}, sweep: {self.planned}"
        if self.task is not None and self.is_baseline:
            return f"{self.task.name}: {BAG_OF_WORDS}"
        stage = "pretraining" if (measure := self.probe or self.task) is None else measure.name
        return f"{self.cell.name}, seed {self.seed}: {stage}{' from scratch' * self.is_scratch}"


@dataclass(frozen=True)
class Failure:
    """A job that failed.

    Attributes:
        job: the job.
        error: the reason, in one line.
        is_fault: whether it is a bug in Foreword, not a mistake or a lack of memory.
    """

    job: Job
    error: str
    is_fault: bool


class TimeLeft:
    """An estimate of the time left, from the mean time of each group of similar jobs.

    Args:
        groups: group of each job, in order; jobs of a group take about equally long.
    """

    def __init__(self, groups: Sequence[Hashable]) -> None:
        self._groups = groups
        self._known: dict[Hashable, list[float]] = {}

    def add(self, number: int, seconds: float) -> None:
        """Record how long job `number` took."""
        self._known.setdefault(self._groups[number], []).append(seconds)

    def estimate(self, number: int, share: float, seconds: float) -> tuple[float, bool]:
        """Estimate the seconds left of this job and all after it.

        Args:
            number: the current job.
            share: share of it that is done, 0 to 1.
            seconds: how long that took.

        Returns:
            The sum over the jobs whose time is known, and whether that is all of them.
        """
        means = {group: fmean(values) for group, values in self._known.items()}
        if share > 0:
            means.setdefault(self._groups[number], seconds / share)
        later = [means.get(group) for group in self._groups[number + 1 :]]
        current = seconds / share - seconds if share > 0 else means.get(self._groups[number])
        estimates = [job for job in [current, *later] if job is not None]
        return sum(estimates), len(estimates) == len(later) + 1


class JobProgress:
    """The progress of one job, shown as a stage of the whole comparison.

    Args:
        progress: shows the comparison.
        time_left: estimates the time left.
        job: the job.
        number: number of the job, from 0.
        total: number of jobs in all.
    """

    def __init__(
        self, progress: ProgressReporter, time_left: TimeLeft, job: Job, number: int, total: int
    ) -> None:
        self._progress, self._time_left = progress, time_left
        self._job, self._number = job, number
        self._name = f"{number + 1}/{total}  {job}"
        self._advance: Callable[..., None] | None = None
        self._shown = (0.0, 0.0, "")
        self._began = time.monotonic()

    def show(self, share: float, seconds: float, note: str = "") -> None:
        """Show the job, of which `share` is done after `seconds`, and the time left of all."""
        self._shown = (share, seconds, note)
        left, is_all = self._time_left.estimate(self._number, share, seconds)
        least = "" if is_all else "at least "
        if self._advance is None:
            self._advance = self._progress.stage(self._name)
        self._advance(share, 1.0, f"{least}{rough(left)} left in all" if left else "", note)

    def stage(self, name: str) -> Callable[..., None]:
        """Show a stage before training; the stages of training show the job."""
        if name in LOOP_STAGES:
            self.show(*self._shown)
            return self._trained if name == TRAINING else lambda *_: None
        self._advance = None
        return self._progress.stage(name)

    def _trained(self, done: float, total: float, note: str = "") -> None:
        self.show(done / total, time.monotonic() - self._began, note)

    def note(self, text: str) -> None:
        """Show a line; those of a trial, which are the same for all, are left out."""
        if self._job.planned is None:
            self._progress.note(f"{self._job}: {text}")

    def warn(self, text: str) -> None:
        """Show a line, even where others are not wanted; those of a trial are left out."""
        if self._job.planned is None:
            self._progress.warn(f"{self._job}: {text}")

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Show the loss of a record."""
        if record["kind"] == "train":
            self.show(progress, record["seconds"], f"loss {record['loss']:.3f}")
        elif record["kind"] == "heldout":
            self.note(f"step {record['step']:,}: held-out loss {record['loss']:.4f}")
