"""`foreword.tune_suite`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from foreword.api import _arguments
from foreword.api._arguments import PathName, Settings, Track, checked
from foreword.api._result import FactsAndRows
from foreword.api._suite_work import PREFIX, SuiteRun, work_of
from foreword.api._tune_settings import GivenSettings, require_name
from foreword.api.progress import ProgressDisplay, progress_of
from foreword.errors import TrainingStoppedError, UserError
from foreword.process import allocator
from foreword.runs.tracking import trackers_of
from foreword.tables.given import texts_of
from foreword.train.device import choose_precision, precision_warning
from foreword.tuning.result import Row
from foreword.tuning.suite import FoundFiles, SuiteTask, TuningSuite, find_files, load_suite
from foreword.tuning.suite_table import cells_in_percent
from foreword.tuning.tuned_start import open_start


@dataclass(frozen=True, repr=False)
class SuiteResult(FactsAndRows):
    """The scores of a suite, task by task, with baselines and published scores.

    Attributes:
        out: folder of the tuned models, one for each task.
        evaluation: file of the scores.
        rows: one per score, and their average; shares of 1, but for scores of another scale, such
            as BLEU (of 100).
        missing: which tasks and files are not there, a line each.
        notes: what chose the learning rates, what was skipped, where predictions are; a line each.
        failures: a line for each task of which every seed diverged.
        content: the scores as the file has them.
    """

    out: Path
    evaluation: Path
    rows: list[Row]
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    failures: tuple[str, ...]
    content: Mapping[str, Any]

    def __fspath__(self) -> str:
        return str(self.out)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the heads and the cells of the table for people, shares in percent."""
        return cells_in_percent(self.rows)

    def _facts(self) -> Mapping[str, Any]:
        return {"tuned models": self.out, "scores": self.evaluation}

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        heads, cells = self.table()
        return [dict(zip(heads, row, strict=True)) for row in cells]


@checked
def tune_suite(
    run: PathName,
    suite: PathName,
    data: PathName,
    *,
    tasks: Sequence[str] = (),
    strategy: str = "full",
    from_scratch: bool = False,
    seeds: int = 3,
    epochs: int = 3,
    batch: int = 16,
    examples: int | None = None,
    lr: float | Sequence[float] | None = None,
    choose: str = "train",
    settings: Settings = (),
    bad_rows: float | None = None,
    max_length: int | None = None,
    precision: str = "auto",
    name: str = "",
    out: PathName | None = None,
    device: str = "auto",
    track: Track = (),
    progress: bool | ProgressDisplay = True,
) -> SuiteResult:
    """Fine-tune a pretrained model on each task of a suite, and tabulate the scores.

        foreword.tune_suite("runs/books", "glue", "GLUE/")

    Each task is fine-tuned as by `tune`, with the metrics of its paper. The learning rate is the
    best of several on a tenth of the training examples, which its trials do not learn from; the dev
    set chooses nothing unless `choose` says so. Tasks whose files are not there are named. Files
    without labels get predictions in the form of the leaderboard, by the saved model, that of seed
    1. Killed at any moment, the same call continues with what is not done.

    Args:
        run: a run folder, or one of its checkpoints.
        suite: its name (`glue`), or a `.toml` file.
        data: folder of its files.
        tasks: names of the tasks to run; default: all whose files are there.
        strategy: which parameters are trained, and how: full, frozen (the head alone), top_layers,
            gradual_unfreezing, layer_decay, lora or prefix_tuning.
        from_scratch: train the same network from random weights.
        seeds: number of seeds; scores are their mean and deviation.
        epochs: number of epochs.
        batch: examples per step.
        examples: number of training examples, drawn anew for each seed; default: all.
        lr: peak learning rate, or several to choose from; default: the strategy's, times each of
            the suite's `rate_factors`.
        choose: what chooses one of several rates: `train`, a part of it, or `dev`, as papers did.
        settings: of fine-tuning: `{"tune.keep": "best"}`, and of every task.
        bad_rows: the share of a file's rows that may be wrong: they are left out, counted and
            named; more are refused. Default: 0.01.
        max_length: maximum tokens of an example; default: the row length of pretraining.
        precision: auto, bf16 or fp32.
        name: of the results; default: the suite's.
        out: folder for the tuned models and predictions; default: RUN/tuned/NAME.
        device: auto, cpu, cuda or mps.
        track: where the scores of each epoch go too: `"tensorboard"`, `"wandb"`, or a tracker.
        progress: whether to show the progress, or what shows it.

    Raises:
        UserError: files are missing or broken, something is in the way, or the model has no
            gradients.
        TrainingStoppedError: every seed of a task diverged.
    """
    # Check every argument.
    how = GivenSettings.of(
        strategy=strategy,
        from_scratch=from_scratch,
        seeds=seeds,
        epochs=epochs,
        batch=batch,
        examples=examples,
        lr=lr,
        choose=choose,
        settings=settings,
        max_length=max_length,
        precision=precision,
    )
    loaded = load_suite(str(_arguments.path(suite, "--suite")))
    present, missing = found_tasks(
        loaded, _arguments.path(data, "--data"), list(texts_of(tasks, "--tasks"))
    )
    trackers, display = trackers_of(track), progress_of(progress)
    name = name or Path(str(suite)).stem
    require_name(name)

    # Open the model. All examples are read first, so that a broken file stops nothing half-way, and
    # those of a task again when it is its turn, so that memory holds the examples of one.
    trained = open_start(_arguments.path(run, "RUN"), device)
    trained.require_gradients()
    target = trained.run / "tuned" / name if out is None else _arguments.path(out, "--out")
    evaluations = trained.run / "evaluations"
    places = target, evaluations / name
    works = [
        partial(work_of, trained, loaded, task, files, places, how, bad_rows)
        for task, files in present
    ]
    table = evaluations / f"{PREFIX}{name}.json"
    with allocator.returning_freed():
        started = SuiteRun(trained, loaded, works, target, table, how.as_table(trained), missing)

    # Fine-tune task by task; the table is written after each.
    with display:
        for line in (*trained.notes, *missing):
            display.note(line)
        emulated = precision_warning(trained.device, choose_precision(precision, trained.device))
        if emulated:
            display.warn(emulated)
        for number, read in enumerate(works, 1):
            started.run(read(), display, f"{number} of {len(works)}", trackers)
    content = started.content()
    if not content["rows"]:
        raise TrainingStoppedError(started.failures[0])
    return SuiteResult(
        target,
        table,
        content["rows"],
        tuple(missing),
        tuple(content["notes"][len(missing) :]),
        tuple(started.failures),
        content,
    )


def found_tasks(
    suite: TuningSuite, folder: Path, names: Sequence[str]
) -> tuple[list[tuple[SuiteTask, FoundFiles]], list[str]]:
    """Return the tasks whose files are in a folder, and a line for what is not.

    Args:
        suite: the suite.
        folder: the folder.
        names: the tasks that are asked for; none for all.

    Raises:
        UserError: files of a task that is asked for are missing, or of all.
    """
    if not folder.is_dir():
        raise UserError(f"--data: {folder}: no such folder")
    present: list[tuple[SuiteTask, FoundFiles]] = []
    notes, missing = [], {}
    for task in suite.choose([name.strip() for name in names]):
        files = find_files(task, folder)
        if isinstance(files, FoundFiles):
            present.append((task, files))
            if files.missing:
                notes.append(f"{task.name}: not there: {', '.join(files.missing)}")
        else:
            missing[task.name] = files
    lines = [f"{name} ({', '.join(files)})" for name, files in missing.items()]
    if names and missing:
        raise UserError(f"--data {folder}: files are missing: {'; '.join(lines)}")
    if not present:
        raise UserError(f"--data {folder}: no task of the suite; it has no {'; '.join(lines)}")
    if lines:
        notes.append(f"left out, since files are not there: {'; '.join(lines)}")
    return present, notes
