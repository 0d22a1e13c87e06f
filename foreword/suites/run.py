"""What fine-tuning on a suite does for each task, and the table that it writes after each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from foreword.disk import atomic, stored
from foreword.errors import TrainingStoppedError, UserError
from foreword.nn.model import neural_settings
from foreword.runs.provenance import command
from foreword.runs.stages import ProgressReporter, progress_folder, watchable
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config
from foreword.suites.examples import read_examples, write_submission
from foreword.suites.suite import SUBMISSION, FoundFiles, SuiteTask, TuningSuite
from foreword.suites.table import score_rows, with_average
from foreword.trackers._contract import Tracker
from foreword.train import log
from foreword.tuning.job import ChosenOn, TuneJob
from foreword.tuning.open_tuned import open_tuned
from foreword.tuning.published_head import with_published_head
from foreword.tuning.settings import TuneSettings
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tune_and_save import tune_and_save

PREFIX = "tune-suite-"  # of the file of a suite's table
SHOWN = ("rows", "examples", "epochs", "labels", "confusion")  # of a task's scores, in the table


class HowToTune(Protocol):
    """How each task is fine-tuned, and where the results go: the arguments of a verb."""

    @property
    def rates(self) -> tuple[tuple[float, ...], ChosenOn]:
        """The learning rates to choose from, if several are given, and what chooses."""

    @property
    def has_rate(self) -> bool:
        """Whether a learning rate is given, so that the suite's are not tried."""

    def tuning_task(
        self, task: Mapping[str, Any], metric: str, *, calibrate: bool, tune: Mapping[str, Any]
    ) -> tuple[Task, TuneSettings]:
        """Return a task by its kind and settings, and how it is tuned; `metric` chooses."""

    def as_table(self, trained: TrainedModel) -> dict[str, Any]:
        """Return everything that the results depend on."""

    def folder_of(self, trained: TrainedModel, name: str) -> Path:
        """Return the folder for the tuned models."""


class SuiteRun:
    """Fine-tuning on the tasks of a suite, whose table is written after each.

    Args:
        notes: lines of the table that do not depend on the scores.
        bad_rows: the share of a file's rows that may be wrong and left out.

    Attributes:
        models: folder of the tuned models.
        table: file of the table.
        failures: a line for each task of which every seed diverged.
    """

    def __init__(
        self,
        trained: TrainedModel,
        suite: TuningSuite,
        how: HowToTune,
        name: str,
        notes: Sequence[str],
        bad_rows: float | None,
    ) -> None:
        self.trained, self._suite, self._how = trained, suite, how
        self._notes, self._bad_rows, self.failures = list(notes), bad_rows, list[str]()
        self._scores = trained.run / "evaluations" / name
        self.table = self._scores.with_name(f"{PREFIX}{name}.json")
        self.models = how.folder_of(trained, name)
        self._settings = how.as_table(trained)
        self._tasks: dict[str, Any] = self._known()

    def job(self, task: SuiteTask, files: FoundFiles) -> TuneJob:
        """Read a task's examples and return its fine-tuning.

        Raises:
            UserError: a file is broken, or a setting does not exist.
        """
        how = self._how
        table = config.kind_table(task.task)
        tuning_task, settings = how.tuning_task(
            table, task.metrics[0], calibrate=False, tune=task.tune
        )
        tuning_task = with_published_head(tuning_task, self.trained)
        rates, chosen_on = how.rates
        if not rates and not how.has_rate:
            peak_lr = settings.strategy.peak_lr(neural_settings(self.trained.recipe.model))
            values = (float(f"{peak_lr * factor:.2g}") for factor in self._suite.rate_factors)
            rates = tuple(dict.fromkeys(values))
        # Read the examples.
        first, *others = files.dev
        parts = {"train": files.train, "dev": files.dev[first]}
        parts |= {name: files.dev[name] for name in others}
        examples, columns = read_examples(task, parts, self._bad_rows)
        dev = {name: [str(file) for file in paths] for name, paths in files.dev.items()}
        about = {name: one for name, one in (examples.about or {}).items() if name not in parts}
        about |= {"train": [str(file) for file in files.train], "dev": dev}
        examples = replace(examples, about=about, notes=examples.warnings)
        return TuneJob(
            tuning_task.for_examples(columns, examples.train),
            examples,
            [settings],
            rates,
            chosen_on,
            has_words=True,
            name=task.name,
            evaluation=self._scores / f"{task.name}.json",
            folder=self.models / task.name,
        )

    def _known(self) -> dict[str, Any]:
        if not self.table.exists():
            return {}
        content = stored.read(self.table)
        if content.get("settings") != json.loads(stored.to_json(self._settings)):
            raise UserError(
                f"{self.table}: already exists, of another model or other settings; "
                "choose another --name"
            )
        return dict(content["tasks"])

    def run(
        self,
        task: SuiteTask,
        files: FoundFiles,
        progress: ProgressReporter,
        trackers: Sequence[Tracker] = (),
    ) -> None:
        """Fine-tune on a task unless it is done, predict its test files, and write the table."""
        job = self.job(task, files)
        content = job.done(self.trained)
        if content is None:
            for note in job.examples.notes:
                progress.warn(note)
            try:
                place = progress_folder(self.models / task.name)
                with watchable(progress, place) as shown:
                    _, content = tune_and_save(self.trained, job, shown, trackers)
            except TrainingStoppedError as error:
                self.failures.append(f"{task.name}: {error}")
                progress.warn(str(error))
                return
        else:
            progress.note("done already, with the same model, settings and examples")
        submissions = self._submitted(task, files, content["request"], progress)
        notes, skipped = list(content["notes"]), content["examples"]["skipped"]
        if skipped:
            notes.append(f"{skipped:,} rows skipped (no text, no label, or broken)")
        self._tasks[task.name] = {
            **{name: content[name] for name in SHOWN if name in content},
            "dev": list(files.dev),
            "notes": notes,
            "evaluation": str((self._scores / f"{task.name}.json").relative_to(self.trained.run)),
            "submissions": submissions,
        }
        with atomic.guarded(self.trained.run):
            stored.write(self.table, self.content())

    def _submitted(
        self, task: SuiteTask, found: FoundFiles, request: str, progress: ProgressReporter
    ) -> dict[str, dict[str, Any]]:
        """Predict test files, except those that the same model has predicted before."""
        known = self._tasks.get(task.name, {}).get("submissions", {})
        submissions = {}
        for name, files in found.test.items():
            out = self.models / SUBMISSION / f"{name}.tsv"
            made_of = {"request": request, "files": [atomic.checksum(file) for file in files]}
            before = known.get(name, {})
            if out.is_file() and made_of.items() <= before.items():
                submissions[name] = before
                continue
            model = open_tuned(self.models / task.name, self.trained.device.type)
            stage = progress.stage(f"predicting {name}")
            rows, empty = write_submission(model, task, files, out, stage)
            submissions[name] = {**made_of, "file": str(out), "rows": rows, "without_text": empty}
        return submissions

    def content(self) -> dict[str, Any]:
        """Return the table as in its file."""
        rows: list[dict[str, Any]] = []
        dev: dict[str, list[str]] = {}
        notes = list(self._notes)
        for task in self._suite.tasks:
            if (done := self._tasks.get(task.name)) is not None:
                dev[task.name] = done["dev"]
                rows += score_rows(self._suite, task, done, done["dev"])
                notes += [f"{task.name}: {note}" for note in done["notes"]]
                for name, entry in done["submissions"].items():
                    of = f"{entry['rows']:,} predictions of seed 1's model"
                    empty = entry["without_text"]
                    of += f", {empty:,} without a text" if empty else ""
                    notes.append(f"{name}: {of}: {entry['file']}")
        sources = {model.name: model.source for model in self._suite.published}
        return {
            "name": self.table.stem,
            "title": f"Fine-tuning: {self.table.stem.removeprefix(PREFIX)}",
            "description": self._suite.description,
            "task": "suite",
            "rows": with_average(rows, dev) if rows else [],
            "command": command(),
            "settings": self._settings,
            "published": sources,
            "tasks": self._tasks,
            "notes": [*notes, *self.failures],
        }


def heldout_loss(trained: TrainedModel) -> float | None:
    """Return the last held-out loss that a run logged up to its checkpoint; None without one."""
    step = trained.folder.name.removeprefix("step-")
    last = int(step) if step.isdecimal() else None
    known = [
        record["loss"]
        for record in log.read(trained.run)
        if record["kind"] == "heldout" and (last is None or record["step"] <= last)
    ]
    return known[-1] if known else None
