"""What fine-tuning on a suite does for each task, and the table that it writes after each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.disk import atomic, stored
from foreword.errors import TrainingStoppedError, UserError
from foreword.nn.model import neural_settings
from foreword.runs.provenance import command
from foreword.runs.stages import Prefixed, ProgressReporter
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.tables.examples import overlap_note
from foreword.tables.table import BadRows
from foreword.trackers._contract import Tracker
from foreword.tuning.predictor import TunedOn
from foreword.tuning.published_head import with_published_head
from foreword.tuning.rates import Rates
from foreword.tuning.result import Row
from foreword.tuning.submission import write_submission
from foreword.tuning.suite import SUBMISSION, FoundFiles, SuiteTask, TuningSuite
from foreword.tuning.suite_files import read_examples
from foreword.tuning.suite_table import score_rows, with_average
from foreword.tuning.written import open_tuned
from foreword.verbs import _fine_tuning
from foreword.verbs._fine_tuning import FineTuning
from foreword.verbs._tune_settings import FineTunes

PREFIX = "tune-suite-"  # of the file of a suite's table
SHOWN = ("rows", "examples", "epochs", "labels", "confusion")  # of a task's scores, in the table


@dataclass(frozen=True)
class SuitePlaces:
    """Where the results on a suite go.

    Attributes:
        models: folder of the tuned models.
        scores: folder of the tasks' scores.
        table: file of the table.
    """

    models: Path
    scores: Path
    table: Path


@dataclass(frozen=True)
class TaskWork:
    """A task to fine-tune on, with its examples read.

    Attributes:
        task: the task.
        files: its files.
        job: the fine-tuning.
    """

    task: SuiteTask
    files: FoundFiles
    job: FineTuning


def work_of(
    trained: TrainedModel,
    suite: TuningSuite,
    task: SuiteTask,
    files: FoundFiles,
    places: SuitePlaces,
    how: FineTunes,
    bad_rows: float | None,
) -> TaskWork:
    """Read a task's examples and return its fine-tuning.

    Args:
        trained: the pretrained model.
        suite: the suite.
        task: the task.
        files: its files.
        places: where the results go.
        how: how to fine-tune.
        bad_rows: the share of a file's rows that may be wrong and left out.

    Raises:
        UserError: a file is broken, or a setting does not exist.
    """
    table = {"kind": kinds.name_of(task.task), **config.to_table(task.task)}
    tuning_task, settings = how.tuning_task(table, metric=task.metrics[0])
    tuning_task = with_published_head(tuning_task, trained)
    rates = how.rates
    if not rates.values and not how.has_rate:
        peak_lr = settings.strategy.peak_lr(neural_settings(trained.recipe.model))
        values = (float(f"{peak_lr * factor:.2g}") for factor in suite.rate_factors)
        rates = Rates(tuple(dict.fromkeys(values)), rates.chosen_on)
    # Read the examples.
    bad = BadRows.of(bad_rows)
    train, skipped, columns = read_examples(task, files.train, bad)
    tuning_task = tuning_task.for_columns(columns)
    dev = {}
    for name, paths in files.dev.items():
        dev[name], skipped_here, _ = read_examples(task, paths, bad)
        skipped += skipped_here
    first, *others = dev
    asked = tuning_task.asked(columns)
    overlap = overlap_note([train], dev[first])
    data = {
        "train": [str(file) for file in files.train],
        "dev": {name: [str(file) for file in paths] for name, paths in files.dev.items()},
        "text": columns.text,
        "pair": columns.pair,
        "label": columns.label,
    }
    job = FineTuning(
        task=tuning_task,
        variants=[settings],
        train=train,
        dev=dev[first],
        tuned_on=TunedOn(asked.text, asked.pair, (), bool(asked.pair)),
        data=data,
        name=task.name,
        evaluation=places.scores / f"{task.name}.json",
        folder=places.models / task.name,
        skipped=skipped,
        further={name: dev[name] for name in others},
        rates=rates,
        has_words=True,
        notes=[*bad.notes, *([overlap] if overlap else [])],
    )
    return TaskWork(task, files, job)


class SuiteRun:
    """The fine-tuning on a suite's tasks, one after another.

    Args:
        trained: the pretrained model.
        suite: the suite.
        works: read the examples of each task.
        places: where the results go.
        settings: all that tells the results from others'.
        notes: lines of the table that do not depend on the scores.
    """

    def __init__(
        self,
        trained: TrainedModel,
        suite: TuningSuite,
        works: Sequence[Callable[[], TaskWork]],
        places: SuitePlaces,
        settings: Mapping[str, Any],
        notes: Sequence[str],
    ) -> None:
        self.trained, self._suite = trained, suite
        self._out, self._evaluation = places.models, places.table
        self._settings, self._notes = dict(settings), list(notes)
        self.failures: list[str] = []
        self._tasks: dict[str, Any] = self._known()
        for read in works:
            _fine_tuning.find(trained, read().job)

    def _known(self) -> dict[str, Any]:
        """Return the tasks of the table, if it exists.

        Raises:
            UserError: the table has other settings.
        """
        known: dict[str, Any] = {}
        if self._evaluation.exists():
            content = stored.read(self._evaluation)
            if content.get("settings") != json.loads(stored.to_json(self._settings)):
                raise UserError(
                    f"{self._evaluation}: already exists, of another model or other settings; "
                    "choose another --name"
                )
            known = dict(content["tasks"])
        return known

    def run(
        self,
        work: TaskWork,
        display: ProgressReporter,
        number: str,
        trackers: Sequence[Tracker] = (),
    ) -> None:
        """Fine-tune on a task unless it is done, predict its test files, and write the table.

        Args:
            work: the task.
            display: shows the progress.
            number: which task of how many, for display.
            trackers: receive the scores of each epoch.
        """
        task, job = work.task, work.job
        task_display = Prefixed(display, f"{task.name} ({number}): ")
        content = _fine_tuning.find(self.trained, job)
        if content is None:
            for note in job.notes:
                task_display.warn(note)
            try:
                _, content = _fine_tuning.fine_tune(self.trained, job, task_display, trackers)
            except TrainingStoppedError as error:
                self.failures.append(f"{task.name}: {error}")
                task_display.warn(str(error))
                return
        else:
            task_display.note("done already, with the same model, settings and examples")
        submissions = self._submitted(work, content["request"], task_display)
        self._tasks[task.name] = {
            **{name: content[name] for name in SHOWN if name in content},
            "dev": list(work.files.dev),
            "notes": [*content["notes"], *_skipped_note(content)],
            "evaluation": str(job.evaluation.relative_to(self.trained.run)),
            "submissions": submissions,
        }
        self.write()

    def _submitted(
        self, work: TaskWork, request: str, display: ProgressReporter
    ) -> dict[str, dict[str, Any]]:
        """Predict test files, except those that the same model has predicted before.

        Returns:
            By the name of the submission, what it was made of, and its rows.
        """
        known = self._tasks.get(work.task.name, {}).get("submissions", {})
        submissions = {}
        for name, files in work.files.test.items():
            out = self._out / SUBMISSION / f"{name}.tsv"
            made_of = {"request": request, "files": [atomic.checksum(file) for file in files]}
            before = known.get(name, {})
            if out.is_file() and made_of.items() <= before.items():
                submissions[name] = before
                continue
            model = open_tuned(work.job.folder, self.trained.device.type)
            stage = display.stage(f"predicting {name}")
            rows, empty = write_submission(model, work.task, files, out, stage)
            submissions[name] = {**made_of, "file": str(out), "rows": rows, "without_text": empty}
        return submissions

    def write(self) -> None:
        """Write the table of the tasks that are done."""
        with atomic.guarded(self.trained.run):
            stored.write(self._evaluation, self.content())

    def content(self) -> dict[str, Any]:
        """Return the table as in its file."""
        rows: list[Row] = []
        dev: dict[str, list[str]] = {}
        notes = list(self._notes)
        for task in self._suite.tasks:
            if (done := self._tasks.get(task.name)) is not None:
                dev[task.name] = done["dev"]
                rows += score_rows(self._suite, task, done, done["dev"])
                notes += [f"{task.name}: {note}" for note in done["notes"]]
                notes += _submission_notes(done["submissions"])
        sources = {model.name: model.source for model in self._suite.published}
        return {
            "name": self._evaluation.stem,
            "title": f"Fine-tuning: {self._evaluation.stem.removeprefix(PREFIX)}",
            "description": self._suite.description,
            "task": "suite",
            "rows": with_average(rows, dev) if rows else [],
            "command": command(),
            "settings": self._settings,
            "published": sources,
            "tasks": self._tasks,
            "notes": [*notes, *self.failures],
        }


def _skipped_note(content: Mapping[str, Any]) -> list[str]:
    skipped = content["examples"]["skipped"]
    return [f"{skipped:,} rows skipped (no text, no label, or broken)"] if skipped else []


def _submission_notes(submissions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a line for each file of predictions."""
    lines = []
    for name, entry in submissions.items():
        empty = f", {entry['without_text']:,} without a text" * bool(entry["without_text"])
        lines.append(
            f"{name}: {entry['rows']:,} predictions of seed 1's model{empty}: {entry['file']}"
        )
    return lines
