"""Suites: named tasks with files in a folder, each fine-tuned and scored as its paper says.

A suite is a TOML file: those shipped are in `recipes/suites/`.

Of several learning rates, the best is chosen for each task on a tenth of its training examples,
which the trials do not learn from; papers often choose on the dev set that they report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from foreword.disk.compressed import COMPRESSIONS
from foreword.errors import UserError, nearest
from foreword.settings import config
from foreword.settings.kinds import part
from foreword.settings.ranges import LearningRate, Ranged
from foreword.tables.columns import Columns
from foreword.tables.files import FORMATS
from foreword.tuning.settings import TuneSettings
from foreword.tuning.tasks._contract import Task, require_score

TEXT_FORMATS = {".txt": ".tsv"}  # endings of a suite's files that are read as another format
SUBMISSION = "submission"  # folder of the predictions for test files, beside those of the tasks


@dataclass(frozen=True)
class NamedFiles:
    """Files that are read one after another.

    Attributes:
        files: paths in the suite's folder, without an ending: any format of tables.
        name: name of the scores or of the submission; default: the task's.
    """

    files: tuple[str, ...]
    name: str = ""


@dataclass(frozen=True)
class SuiteLayout:
    """The files of a task in one of the forms it is published in.

    Attributes:
        train: files to train on.
        dev: files to score on, the first of which must be there.
        test: files without labels, whose predictions are written for a submission.
    """

    train: tuple[str, ...]
    dev: tuple[NamedFiles, ...]
    test: tuple[NamedFiles, ...] = ()


@dataclass(frozen=True)
class SuiteTask:
    """A task of a suite.

    Attributes:
        name: name in tables, and folder of its tuned model.
        layouts: its files; the first layout whose training and first dev files are there counts.
        metrics: the scores that are reported, the first of which chooses learning rates.
        task: a kind in `tuning/tasks/`.
        columns: the columns that its files may have; the first that a file has count. Default: the
            task's usual ones, as in `foreword tune`.
        names: names of all columns of files without a header.
        labels: all labels, of which every row must have one; a whole number stands for the label
            at its place, from 0. Default: any.
        range: least and greatest number, where labels are numbers.
        skips_broken_rows: whether rows with too few or too many columns are skipped and counted, as
            rows without text or label are, and not refused.
        tune: settings of fine-tuning on this task, {examples = 100, strategy = {kind = "frozen"}};
            the call's own override them.
    """

    name: str
    layouts: tuple[SuiteLayout, ...]
    metrics: tuple[str, ...]
    task: Task = part("tuning/tasks", "classify")
    columns: tuple[Columns, ...] = ()
    names: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    range: tuple[float, ...] = ()
    skips_broken_rows: bool = False
    tune: Any = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.tune, Mapping):
            raise ValueError("tune: must be a table of settings")
        config.build(TuneSettings, self.tune, f"tasks.{self.name}.tune")
        for metric in self.metrics:
            require_score(self.task, metric, "metrics")
        if "/" in self.name or not self.name.strip("."):
            raise ValueError(f"name: must be a name, not a path, got {self.name!r}")
        if len(self.range) not in (0, 2):
            raise ValueError("range: must be the least and the greatest number")

    @property
    def formats(self) -> Mapping[str, str]:
        """The endings of files that are read as another format, the task's own among them."""
        return TEXT_FORMATS | dict(self.task.reader.formats)


@dataclass(frozen=True)
class Published:
    """Published scores of a model.

    Attributes:
        name: name of the model.
        source: where they were published.
        on: whether they are of the test or of the dev set.
        scores: by task (or name of a dev set) and metric; in percent, but for those that are not
            shares, such as BLEU (of 100) or a perplexity.
    """

    name: str
    source: str
    on: Literal["test", "dev"] = "test"
    scores: Any = field(default_factory=dict)

    def __post_init__(self) -> None:
        of_tasks = self.scores.values() if isinstance(self.scores, Mapping) else [self.scores]
        if not all(isinstance(of_task, Mapping) for of_task in of_tasks):
            raise ValueError(
                "scores: expected numbers by task and metric, {mood = {accuracy = 71}}"
            )

    def score(self, name: str, metric: str, *, is_share: bool) -> float | None:
        """Return a score on the scale of the model's own: a share of 1 is given in percent."""
        value = self.scores.get(name, {}).get(metric)
        return value if value is None or not is_share else float(value) / 100


@dataclass(frozen=True)
class TuningSuite(Ranged):
    """Tasks to fine-tune a model on, one by one.

    Attributes:
        tasks: the tasks, in the order of the table.
        description: one line.
        published: scores to stand beside the model's.
        rate_factors: learning rates to choose from, as multiples of the strategy's own.
    """

    tasks: tuple[SuiteTask, ...]
    description: str = ""
    published: tuple[Published, ...] = ()
    rate_factors: tuple[LearningRate, ...] = (1.0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        names = Counter(task.name.lower() for task in self.tasks)
        if repeated := [name for name, count in names.items() if count > 1]:
            raise ValueError(f"tasks: two are called '{repeated[0]}'")

    def choose(self, names: Sequence[str]) -> tuple[SuiteTask, ...]:
        """Return the tasks with these names, in any case, in the suite's order; all for none.

        Raises:
            UserError: there is no such task.
        """
        known = {task.name.lower(): task for task in self.tasks}
        for name in names:
            if name.lower() not in known:
                spelled = [task.name for task in self.tasks]
                raise UserError(f"--tasks: no task '{name}'{nearest(name, spelled)}")
        lower_names = {name.lower() for name in names}
        return tuple(t for t in self.tasks if not lower_names or t.name.lower() in lower_names)


@dataclass(frozen=True)
class FoundFiles:
    """The files of a task that are there.

    Attributes:
        train: to train on.
        dev: to score on, by the name of the scores; the first chooses.
        test: to predict, by the name of the submission.
        missing: other files that the layout names and that are not there.
    """

    train: tuple[Path, ...]
    dev: Mapping[str, tuple[Path, ...]]
    test: Mapping[str, tuple[Path, ...]]
    missing: tuple[str, ...]


def load_suite(name: str) -> TuningSuite:
    """Load a shipped suite or a file.

    Raises:
        UserError: it does not exist or has a mistake; the key is named.
    """
    return config.load(TuningSuite, config.SUITES.find(name), what="a suite of tasks")


def find_files(task: SuiteTask, folder: Path) -> FoundFiles | tuple[str, ...]:
    """Return the files of a task in a folder; if it cannot be run, those that are missing."""
    missing: list[tuple[str, ...]] = []
    endings = dict.fromkeys((*FORMATS, *task.formats))
    whole_endings = [f"{one}{packed}" for one in endings for packed in ("", *COMPRESSIONS)]
    for layout in task.layouts:
        further = [file for part in (*layout.dev, *layout.test) for file in part.files]
        names = dict.fromkeys((*layout.train, *further))
        found: dict[str, Path] = {}
        for name in names:
            files = (folder / f"{name}{ending}" for ending in whole_endings)
            if (file := next(filter(Path.is_file, files), None)) is not None:
                found[name] = file
        required = (*layout.train, *layout.dev[0].files)
        if lacking := tuple(name for name in required if name not in found):
            missing.append(lacking)
            continue
        dev, test = (
            {
                part.name or task.name: tuple(found[name] for name in part.files)
                for part in parts
                if found.keys() >= set(part.files)
            }
            for parts in (layout.dev, layout.test)
        )
        train = tuple(found[name] for name in layout.train)
        return FoundFiles(train, dev, test, tuple(name for name in names if name not in found))
    return min(missing, key=len)
