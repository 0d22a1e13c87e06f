"""`foreword tune-suite`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.disk import atomic
from foreword.display.progress import progress_of
from foreword.display.results import Part, Remark, Result, ResultTable, Shown, remarks
from foreword.errors import TrainingStoppedError, UserError
from foreword.settings.ranges import Share
from foreword.verbs._arguments import distinct_names, paths
from foreword.verbs._contract import ARGUMENT, Flag, PathName, Paths, Verb
from foreword.verbs._tune_settings import FineTunes

if TYPE_CHECKING:
    from foreword.evaluation.statistics import Signal
    from foreword.suites.suite import FoundFiles, SuiteTask, TuningSuite


@dataclass(frozen=True, repr=False)
class SuiteResult(Result):
    """The scores of a suite, task by task, with baselines and published scores.

    Attributes:
        out: folder of the tuned models, one for each task.
        evaluation: file of the scores.
        rows: one per score, and their average; shares of 1, but for scores of another scale, such
            as BLEU (of 100).
        notes: which tasks and files are not there, what chose the learning rates, what was skipped,
            where predictions are; a line each.
        failures: a line for each task of which every seed diverged.
        content: the scores as the file has them.
    """

    out: Path
    evaluation: Path
    rows: list[dict[str, Any]]
    notes: tuple[str, ...]
    failures: tuple[str, ...]
    content: Mapping[str, Any]

    def __fspath__(self) -> str:
        return str(self.out)

    @property
    def status(self) -> int:
        """The exit status of the command: 2 if every seed of a task diverged."""
        return 2 if self.failures else 0

    def data(self) -> dict[str, Any]:
        """Return the scores, and where they and the tuned models are."""
        saved = {"evaluation": str(self.evaluation), "out": str(self.out)}
        return dict(self.content) | saved

    def tables(self) -> Sequence[Part]:
        """Return the table, shares in percent, how to read it, and the files."""
        from foreword.suites.table import cells_in_percent

        heads, cells = cells_in_percent(self.rows)
        heads = [head.replace(" ", "\n") for head in heads]
        rows = [dict(zip(heads, row, strict=True)) for row in cells]
        notes = [(Shown if "warning: " in note else Remark)(note) for note in self.notes]
        lines = [
            "in percent, ± the standard deviation over seeds; published scores marked (test) are "
            "of the test sets, all others of the dev sets",
            f"scores: {self.evaluation}",
            f"tuned models: {self.out}",
        ]
        return [ResultTable(rows, str(self.content["title"])), *notes, *map(Remark, lines)]


@dataclass(frozen=True, repr=False)
class SuiteComparison(Result):
    """The scores of several runs on a suite, a row each.

    Attributes:
        results: those of each run.
        rows: for each run its held-out loss, each score with its standard error (`_se`), and the
            mean of the scores, standardised over the runs.
        table: the file of the rows; None for none.
    """

    results: tuple[SuiteResult, ...]
    rows: list[dict[str, Any]]
    table: Path | None

    @property
    def status(self) -> int:
        """The exit status of the command: 2 if every seed of a run's task diverged."""
        return max(result.status for result in self.results)

    def data(self) -> dict[str, Any]:
        """Return the rows, and the files of each run's scores."""
        files = {name: str(one.evaluation) for name, one in self._named()}
        signals = {name: one and asdict(one) for name, one in self._signals().items()}
        return {"rows": self.rows, "signals": signals, "evaluations": files}

    def _signals(self) -> dict[str, Signal | None]:
        from foreword.suites.table import run_signals

        return run_signals({name: one.rows for name, one in self._named()})

    def _named(self) -> list[tuple[str, SuiteResult]]:
        return [(row["run"], one) for row, one in zip(self.rows, self.results, strict=True)]

    def tables(self) -> Sequence[Part]:
        """Return the table, what was noted of the runs, and the files."""
        from foreword.evaluation.statistics import signal_notes
        from foreword.suites.table import ERROR

        columns = [name for name in self.rows[0] if not name.endswith(ERROR)]
        rows = [
            {
                name: _cell(row[name], row.get(name + ERROR)) if name != "run" else row[name]
                for name in columns
            }
            for row in self.rows
        ]
        notes = dict.fromkeys(note for one in self.results for note in one.notes)
        saved = [] if self.table is None else [f"table: {self.table}"]
        lines = [
            "± the standard error over seeds, which draw other examples where the suite has some "
            "drawn; standardised: the mean of the scores, each in deviations between these runs",
            *signal_notes(self._signals(), "runs", "over seeds"),
            *saved,
            *(f"scores of {name}: {one.evaluation}" for name, one in self._named()),
        ]
        return [ResultTable(rows), *remarks(notes), *map(Remark, lines)]


def _cell(value: float | None, error: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if error is None else f"{value:.3f} ± {error:.3f}"


@dataclass(frozen=True)
class TuneSuite(FineTunes, Verb[SuiteResult | SuiteComparison]):
    """Fine-tune a pretrained model on each task of a suite, such as GLUE, and tabulate the scores.

        foreword.tune_suite("runs/books", "glue", "GLUE/")
        foreword.tune_suite(["runs/a", "runs/b"], "early", "data/").rows

    Each task whose files are in --data is fine-tuned on and scored as its paper does: glue reads
    the original files of GLUE. The learning rate is the strategy's times one of the suite's
    rate_factors (of GLUE 0.5, 1 and 2), or one of those given with --lr: of several the best is
    chosen for each task on a tenth of its training examples. The table has baselines and published
    scores beside the model's; files without labels get predictions to submit, in --out/submission.
    Killed at any moment, the same call continues with what is not done.

    Suite early tells pretrainings apart in a minute or two each on one core, where their losses do
    not: parts of speech, entities and two classifications, from the states of the frozen model.
    Several runs are shown in one table, a row each, with their held-out losses.

    Attributes:
        run: run folders, checkpoints/step-* in them, or tuned models.
        suite: its name (glue, early), or a .toml file.
        data: folder of its files, or of some of them.
        tasks: its tasks to run, CoLA,RTE; default: all there are.
        bad_rows: share of a file's rows that may be wrong: they are left out, counted and named,
            more are refused; default: 0.01.
        lr: peak learning rate; default: the strategy's, times each of the suite's rate_factors. Of
            several --lr the best is chosen.
        table: file for a row for each run, .csv: its loss, and each score with its standard error.
        name: name of the results; default: the suite's.
        out: folder for the tuned models and predictions; default: RUN/tuned/NAME.
    """

    run: Annotated[Paths, Flag(is_argument=True, metavar="RUN...")]
    suite: Annotated[PathName, ARGUMENT]
    data: PathName
    _: KW_ONLY
    tasks: Annotated[str | Sequence[str], Flag(takes=str)] = ()
    bad_rows: Share | None = None
    table: PathName | None = None

    def __call__(self) -> SuiteResult | SuiteComparison:
        import pyarrow as pa

        from foreword.suites.run import heldout_loss
        from foreword.suites.table import run_rows
        from foreword.tables.files import format_of
        from foreword.tables.write import SourcedRow, writing_rows

        folders = list(dict.fromkeys(map(Path, paths(self.run))))
        if self.out is not None and len(folders) > 1:
            raise UserError("--out: is for one run; the models of several are in RUN/tuned")
        if self.table is not None:
            format_of(Path(self.table))
            atomic.require_writable(Path(self.table), is_folder=False, remedy=atomic.OTHER_OUT)
        names = distinct_names(folders)
        trained = map(self.opened, folders)
        losses = dict(zip(names, map(heldout_loss, trained), strict=True))
        results = tuple(self._result(folder) for folder in folders)
        rows = run_rows({n: one.rows for n, one in zip(names, results, strict=True)}, losses)
        if self.table is not None:
            columns = dict.fromkeys(name for row in rows for name in row)
            types = dict.fromkeys(columns, pa.float64()) | {"run": pa.string()}
            with writing_rows(Path(self.table), types) as write:
                write([SourcedRow(row["run"], row) for row in rows])
        if len(results) == 1:
            return results[0]
        return SuiteComparison(results, rows, None if self.table is None else Path(self.table))

    def _result(self, run: Path) -> SuiteResult:
        from foreword.process import allocator
        from foreword.runs.stages import Prefixed
        from foreword.runs.tracking import trackers_of
        from foreword.suites.run import SuiteRun
        from foreword.suites.suite import load_suite
        from foreword.verbs._arguments import path

        # Check every argument.
        suite = load_suite(str(path(self.suite, "SUITE")))
        present, missing = self._found_tasks(suite, path(self.data, "--data"))
        trackers_of(self.track), progress_of(self.progress)
        self.require_name()
        self.rates  # noqa: B018
        name = self.name or Path(str(self.suite)).stem

        # Open the model. All examples are read first, so that a broken file stops nothing half-way,
        # and those of a task again when it is its turn, so that memory holds the examples of one.
        trained = self.opened(run)
        suite_run = SuiteRun(trained, suite, self, name, missing, self.bad_rows)
        with allocator.returning_freed():
            for task, files in present:
                suite_run.job(task, files).done(trained)
        trackers = trackers_of(self.track)
        with progress_of(self.progress) as display:
            for line in [*trained.notes, *missing]:
                display.note(line)
            if emulated := self.emulation_warning(trained):
                display.warn(emulated)
            for number, (task, files) in enumerate(present, 1):
                progress = Prefixed(display, f"{task.name} ({number} of {len(present)}): ")
                suite_run.run(task, files, progress, trackers)
        content = suite_run.content()
        if not content["rows"]:
            raise TrainingStoppedError(suite_run.failures[0])
        return SuiteResult(
            suite_run.models,
            suite_run.table,
            content["rows"],
            tuple(content["notes"]),
            tuple(suite_run.failures),
            content,
        )

    def _found_tasks(
        self, suite: TuningSuite, folder: Path
    ) -> tuple[list[tuple[SuiteTask, FoundFiles]], list[str]]:
        """Return the tasks whose files are in a folder, and a line for what is not."""
        from foreword.suites.suite import FoundFiles, find_files
        from foreword.tables.given import texts_of

        given = self.tasks.split(",") if isinstance(self.tasks, str) else self.tasks
        names = [name.strip() for name in texts_of(given, "--tasks") if name.strip()]
        if not folder.is_dir():
            raise UserError(f"--data: {folder}: no such folder")
        present: list[tuple[SuiteTask, FoundFiles]] = []
        notes, missing = [], {}
        for task in suite.choose(names):
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
