"""Labelled examples as callers give them: files, tables such as DataFrames, or tuples.

To `tune` they have the columns and prefixes that are named, to a tuned model those of training.
"""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from foreword.disk import stored
from foreword.errors import UserError
from foreword.settings import kinds
from foreword.tables.columns import Columns, ReadExample
from foreword.tables.examples import Labelled, LabelledTexts, overlap_note
from foreword.tables.files import SEPARATED, ending_of, format_of
from foreword.tables.given import (
    LABEL,
    PAIR,
    TEXT,
    examples_table,
    given_table,
    items_of,
    records_table,
    texts_of,
)
from foreword.tables.read import read_table
from foreword.tables.reads_rows import ReadsLabelled
from foreword.tables.table import (
    BAD_ROWS,
    BadRows,
    ExampleTable,
    chosen_columns,
    labelled,
    with_flags,
)
from foreword.tuning.job import Examples
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks.multilabel import labels_of
from foreword.tuning.tuned_folder import SCORES, TunedOn
from foreword.tuning.tuned_model import Predictor, TunedWriter


@dataclass(frozen=True)
class ExampleSource:
    """One file, table or list of examples.

    Attributes:
        file: the file, or "".
        table: the rows of what is no file, or None.
        columns: the columns of a list of examples; None for those that arguments name.
    """

    file: str = ""
    table: ExampleTable | None = None
    columns: Columns | None = None


def sources_of(examples: Any, name: str, task: Task) -> list[ExampleSource]:
    """Return the files or tables of an argument, or its examples as one table.

    Args:
        examples: a file or a table, or several; or examples, each `(text, label)`, `(text, label,
            second text)` or a dictionary of values by column.

    Raises:
        UserError: it is something else, or an example is.
    """
    if (source := _source_of(examples, name)) is not None:
        return [source]
    items = list(items_of(examples, name, "examples"))
    if not items:
        raise UserError(f"{name}: is empty")
    is_tuple = isinstance(items[0], tuple | list)
    if isinstance(items[0], Mapping) or (is_tuple and not task.reader.takes_texts):
        fields = [name for name in astuple(task.reader.columns[0]) if name]
        return [ExampleSource("", records_table(items, name, fields))]
    if is_tuple:
        table = examples_table(items, name, needs_label=not task.reader.compares_texts)
        label, pair = (name if name in table.columns else "" for name in (LABEL, PAIR))
        return [ExampleSource("", table, Columns(TEXT, label, pair))]
    sources = []
    for number, item in enumerate(items):
        if (source := _source_of(item, f"{name}[{number}]")) is None:
            raise UserError(
                f"{name}[{number}]: expected (text, label), or a file or table for each task; got "
                f"{reprlib.repr(item)}"
            )
        sources.append(source)
    return sources


def _source_of(value: Any, name: str) -> ExampleSource | None:
    if isinstance(value, str | PathLike):
        return ExampleSource(str(Path(value)))
    table = given_table(value, name)
    return None if table is None else ExampleSource("", table)


def name_of(train: Sequence[ExampleSource]) -> str:
    """Return folder and file, `CoLA-small`; for a file named `train`, the folder alone."""
    if not train[0].file:
        return "data"
    path = Path(train[0].file).resolve()
    folder, file = path.parent.name, path.name.partition(".")[0]
    return "-".join(part for part in (folder, file) if part and part != "train") or "data"


@dataclass(frozen=True)
class ReadPart:
    """Examples of one argument, as they were read.

    Attributes:
        sources: where they came from, a source for each task.
        tasks: the examples of each task.
        skipped: the number of rows without text or label.
        columns: which columns of each source hold what.
    """

    sources: Sequence[ExampleSource]
    tasks: Sequence[Sequence[Labelled]]
    skipped: int
    columns: Sequence[Columns]

    @property
    def together(self) -> LabelledTexts:
        """The examples of all tasks."""
        one = self.tasks[0] if len(self.tasks) == 1 else itertools.chain.from_iterable(self.tasks)
        return LabelledTexts.of(one)

    @property
    def description(self) -> str | list[str]:
        """Where the examples came from, as the evaluation's settings record it."""
        named = [
            source.file or f"{len(task):,} examples given in Python"
            for source, task in zip(self.sources, self.tasks, strict=True)
        ]
        return named[0] if len(named) == 1 else named


class ExampleReader:
    """Reads examples from files and tables: of `tune`, of a suite's tasks, of a grid's.

    Args:
        reads: which columns hold what, the task prefix of each file or table, or none, and how many
            rows may be wrong.
        read: makes an example of a row; default: as the task does.
        named: how the user names a column.

    Raises:
        UserError: a prefix is not a text.
    """

    def __init__(
        self,
        task: Task,
        reads: ReadsLabelled,
        read: ReadExample | None = None,
        named: str = "--{}",
    ) -> None:
        self.task, self._reads, self._row, self._named = task, reads, read, named
        prefix = reads.prefix
        self.prefixes = (
            [prefix] if isinstance(prefix, str) else list(texts_of(prefix or (), "prefix"))
        )
        self.bad = BadRows.of(reads.bad_rows)

    def read(
        self, sources: Mapping[str, Sequence[ExampleSource]], temperature: float = 1.0
    ) -> tuple[Examples, Columns]:
        """Return the examples of a fine-tuning, and which columns those to train on have.

        Args:
            sources: the sources of `train`, `dev`, and perhaps other examples to score at the end.

        Raises:
            UserError: a file cannot be read, arguments do not fit the sources, or pairs of texts
                are among single texts.
        """
        self._require_fitting([source for part in sources.values() for source in part])
        parts = {name: self._read(part) for name, part in sources.items()}
        every = [columns for part in parts.values() for columns in part.columns]
        if len({bool(c.pair) for c in every}) > 1 and not self.task.reader.compares_texts:
            raise UserError(f"{', '.join(parts)}: pairs of texts in one, single texts in the other")
        tasks, columns = parts["train"].tasks, parts["train"].columns[0]
        scored = {name: part.together for name, part in parts.items() if name != "train"}
        overlaps = [overlap_note(tasks, part, name) for name, part in scored.items()]
        asked = self.task.reader.to_predict(columns)
        is_pair = None if self.task.reader.compares_texts else bool(asked.pair)
        # Where they came from, as the settings of the scores record it.
        about: dict[str, Any] = {name: part.description for name, part in parts.items()}
        about |= {"text": columns.text, "pair": columns.pair, "label": columns.label}
        about |= {"group": columns.group} if columns.group else {}
        about |= {} if self.bad.share == BAD_ROWS else {"bad_rows": self.bad.share}
        if self.prefixes:
            about |= {"prefix": self.prefixes, "temperature": temperature}
        warnings = [*self.bad.notes, *filter(None, overlaps)]
        warnings += unused_columns(columns.label, itertools.chain.from_iterable(tasks))
        return Examples(
            mix_tasks(tasks, temperature),
            scored.pop("dev", ()),
            scored,
            TunedOn(asked.text, asked.pair, tuple(self.prefixes), is_pair),
            about,
            sum(part.skipped for part in parts.values()),
            warnings,
        ), columns

    def read_part(self, sources: Sequence[ExampleSource]) -> ReadPart:
        """Return examples of one kind, such as those to score alone."""
        self._require_fitting(sources)
        return self._read(sources)

    def _require_fitting(self, sources: Sequence[ExampleSource]) -> None:
        if all(source.columns is not None for source in sources) and self._reads.named:
            raise UserError("text, label, pair: tuples have no columns to choose from")
        if self._reads.names and not any(source.file for source in sources):
            raise UserError("columns: names the columns of files without a header, and none is one")
        if self.prefixes and (not self.task.reader.takes_texts or self.task.reader.compares_texts):
            kind = kinds.name_of(self.task)
            raise UserError(f"--prefix: is for texts; {kind} reads its examples as they are")

    def _read(self, sources: Sequence[ExampleSource]) -> ReadPart:
        if len(self.prefixes) not in (0, len(sources)):
            raise UserError(
                "--prefix: requires one for each --train and each --dev, in their order; got "
                f"{len(self.prefixes)} for {len(sources)} files"
            )
        tasks: list[Sequence[Labelled]] = []
        used: list[Columns] = []
        skipped = 0
        for n, source in enumerate(sources):
            table = source.table or self._table(source.file)
            used.append(
                source.columns or chosen_columns(table, self.task.reader.columns, self._reads.named)
            )
            table = with_flags(table, used[-1], self._named)
            examples, skipped_here = labelled(
                table,
                used[-1],
                self._row or self.task.reader.read,
                needs_label=not self.task.reader.compares_texts,
                bad=self.bad,
                named=self._named,
            )
            skipped += skipped_here
            if self.prefixes:
                prefix = self.prefixes[n]
                examples = LabelledTexts.of(e.with_prefix(prefix) for e in examples)
            tasks.append(examples)
        return ReadPart(sources, tasks, skipped, used)

    def _table(self, file: str) -> ExampleTable:
        kind = "" if Path(file).is_dir() else self._format_of(Path(file))
        names, first = self._reads.names, self.task.reader.columns[0]
        has_header = kind in SEPARATED and not names
        by_number = has_header and replace(first, **self._reads.named).are_numbers
        return read_table(file, names, by_number, self.task.reader.formats)

    def _format_of(self, file: Path) -> str:
        try:
            return format_of(file, self.task.reader.formats)[0]
        except UserError as error:
            folder, ending = "tuning/tasks", ending_of(file)
            names = [
                n for n in kinds.names(folder) if ending in kinds.load(folder, n).reader.formats
            ]
            if not names:
                raise
            are_read = f"{ending} is read by --task {' and '.join(names)}"
            raise UserError(f"{error}; {are_read}") from None


def unused_columns(label: str, train: Iterable[Labelled]) -> list[str]:
    """Return a warning of columns of 0 and 1, `a,b,c`, in which no example has 1; or none."""
    names = [name.strip() for name in label.split(",")]
    if len(names) < 2:
        return []
    found = {each for example in train for each in labels_of(example.label)}
    unused = ", ".join(name for name in names if name not in found)
    if not unused or not found < set(names):
        return []
    return [f"no training example has 1 in {unused}, so the model never predicts it"]


def mix_tasks(tasks: Sequence[Sequence[Labelled]], temperature: float = 1.0) -> Sequence[Labelled]:
    """Return a mixture of tasks, each in proportion to (examples)^(1 / temperature).

    At a temperature of 1 these are all examples; the higher it is, the more equal the shares.
    Small tasks are then repeated and large ones cut; an epoch stays as long as all tasks together.

    Reference: Raffel et al. 2020, section 3.5.2; without their limit on a task's size.

    Raises:
        UserError: the temperature is below 1.
    """
    if temperature < 1:
        raise UserError(
            f"--temperature {temperature:g}: must be at least 1, which weights all examples equally"
        )
    if len(tasks) == 1:
        return tasks[0]
    sizes = np.asarray([len(task) for task in tasks], dtype=np.float64)
    shares = sizes ** (1 / temperature)
    counts = np.rint(sizes.sum() * shares / shares.sum()).astype(int)
    return LabelledTexts.of(
        task[n % len(task)] for task, count in zip(tasks, counts, strict=True) for n in range(count)
    )


@dataclass(frozen=True)
class TunedExamples:
    """Labelled examples as a fine-tuned model reads them.

    Attributes:
        read: as they were read.
        examples: with their task prefixes.
        notes: what was wrong in them, a line for each file.
    """

    read: ReadPart
    examples: LabelledTexts
    notes: Sequence[str]


def tuned_examples(
    models: Sequence[Predictor | TunedWriter],
    data: Any,
    reads: ReadsLabelled,
    option: str = "--data",
) -> list[TunedExamples]:
    """Return labelled examples in the form in which each model was tuned.

    Args:
        data: the examples; default: those that each model was scored on.
        reads: which columns hold what; default: as tuned.
        option: the option that names the examples, for messages.

    Raises:
        UserError: there are none, a file cannot be read, or they do not fit a model.
    """
    sources = None if data is None else sources_of(data, "data", models[0].task)
    return [_tuned_part(model, sources, reads, option) for model in models]


def _tuned_part(
    model: Predictor | TunedWriter,
    sources: Sequence[ExampleSource] | None,
    reads: ReadsLabelled,
    option: str,
) -> TunedExamples:
    scores = stored.read(model.source / SCORES)
    known: Mapping[str, Any] = scores["settings"]["data"]
    # Where they are: given, or those that it was scored on, whose number is known.
    where = sources
    if where is None:
        if "dev" not in known:
            raise UserError(
                f"{model.source}: was scored in folds; {option} names examples to score"
            )
        if isinstance(known["dev"], Mapping):  # a suite's, read in its own way
            raise UserError(
                f"{model.source}: was tuned on a suite; {option} names labelled examples"
            )
        files = [known["dev"]] if isinstance(known["dev"], str) else list(known["dev"])
        if missing := [file for file in files if not Path(file).exists()]:
            raise UserError(f"{missing[0]}: no such file; {option} names labelled examples")
        where = sources_of(files, "dev", model.task)
    usual = () if where[0].columns else (TEXT, PAIR, LABEL)
    columns = {name: known.get(name) or None for name in usual}

    # The prefixes: given, those of its own files, or the one of training.
    prefixes = [] if reads.prefix is None else [str(reads.prefix)] * len(where)
    if reads.prefix is None and sources is None:
        prefixes = list(known.get("prefix") or [])[-len(where) :]
    bad_rows = known.get("bad_rows") if reads.bad_rows is None else reads.bad_rows
    named: dict[str, Any] = columns | reads.named
    reader = ExampleReader(
        model.task,
        ReadsLabelled(**named, columns=reads.columns, prefix=prefixes, bad_rows=bad_rows),
    )
    part = reader.read_part(where)
    model.tuned_on.require_form(is_pair=bool(model.task.reader.to_predict(part.columns[0]).pair))
    examples = part.together
    if not prefixes and model.task.reader.takes_texts and not model.task.reader.compares_texts:
        examples = LabelledTexts.of(model.tuned_on.with_prefix(e, None) for e in examples)
    if not examples:
        raise UserError(f"{part.description}: no example has a text and a label")
    if sources is None and len(examples) != scores["examples"]["dev"]:
        raise UserError(
            f"{part.description}: has {len(examples):,} examples, and {model.source} was scored on "
            f"{scores['examples']['dev']:,}; {option} names labelled examples"
        )
    return TunedExamples(part, examples, reader.bad.notes)
