"""The examples of a suite's task, from files in any published layout, and its predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from foreword.disk import atomic
from foreword.errors import UserError
from foreword.suites.suite import SuiteTask
from foreword.tables.columns import PREDICTION, Columns
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tables.files import SEPARATED, format_of
from foreword.tables.read import read_table
from foreword.tables.reads_rows import ReadsLabelled
from foreword.tables.table import ExampleTable
from foreword.tuning.example_reader import ExampleReader, ExampleSource
from foreword.tuning.job import Examples
from foreword.tuning.tuned_model import Predictor, TunedWriter

INDICES = ("index", "id", "idx")  # columns with the number of an example
NO_LABEL = ("-1", "-")  # of rows that annotators did not agree on, or of test files


def read_examples(
    task: SuiteTask, parts: Mapping[str, Sequence[Path]], bad_rows: float | None = None
) -> tuple[Examples, Columns]:
    """Return the examples of files, and the columns of the first to train on.

    Args:
        parts: the files of `train`, `dev`, and perhaps others to score on.
        bad_rows: the share of a file's rows that may be wrong, as with a label of no class or a
            number out of range; None for the default.

    Raises:
        UserError: a file cannot be read, lacks a column, has no example, or has too many rows that
            are wrong.
    """
    sources: dict[str, list[ExampleSource]] = {}
    for name, files in parts.items():
        tables = [_table(task, file) for file in files]
        sources[name] = [
            ExampleSource(str(table.path), table, _columns(task, table, needs_label=True))
            for table in tables
        ]
    reads = ReadsLabelled(bad_rows=bad_rows)
    return ExampleReader(task.task, reads, partial(_read, task)).read(sources)


def read_unlabelled(
    task: SuiteTask, files: Sequence[Path]
) -> Iterator[tuple[str, Labelled | None]]:
    """Yield the number of each example in files, and the example, None if a text is missing.

    Raises:
        UserError: a file cannot be read, or lacks a column.
    """
    number = 0
    for file in files:
        table = _table(task, file)
        columns = replace(_columns(task, table, needs_label=False), label="")
        index = next((name for name in INDICES if name in table.columns), None)
        for line, row in table.sound_rows():
            cell = row.get(index) if index else None
            name = str(number if cell in (None, "") else cell)
            yield name, task.task.reader.read(row, columns, table.source_of(line))
            number += 1


def _table(task: SuiteTask, file: Path) -> ExampleTable:
    """Return a file as a table, whose columns have the suite's names if it has no header."""
    kind, _ = format_of(file, task.formats)
    read = partial(read_table, file, formats=task.formats, skips_broken=task.skips_broken_rows)
    if not task.names or kind not in SEPARATED:
        return read()
    numbered = read_table(file, are_numbers=True, formats=task.formats, skips_broken=True)
    first: Mapping[str, Any] = next((row for _, row in numbered.rows()), {})
    known = {str(cell).strip() for cell in first.values()}
    return (
        read() if any(_texts_of(c) <= known for c in _choices(task, numbered)) else read(task.names)
    )


def _columns(task: SuiteTask, table: ExampleTable, *, needs_label: bool) -> Columns:
    known = set(table.columns)
    choices = _choices(task, table)
    for columns in choices:
        has_label = columns.label in ("", *known)
        if _texts_of(columns) <= known and (has_label or not needs_label):
            return columns
    expected = " or ".join(
        ", ".join(
            f"'{name}'"
            for name in (choice.text, choice.pair, choice.label if needs_label else "")
            if name
        )
        for choice in choices
    )
    raise UserError(
        f"{table.path}: {task.name} has the columns {expected}; this file has: "
        f"{', '.join(table.columns)}"
    )


def _choices(task: SuiteTask, table: ExampleTable) -> Sequence[Columns]:
    """Return the columns that a table may have: the suite's, the format's, or the task's usual."""
    usual = task.task.reader.columns if table.usual is None else (table.usual,)
    return task.columns or usual


def _texts_of(columns: Columns) -> set[str]:
    return {columns.text, columns.pair} - {""}


def _read(
    task: SuiteTask, row: Mapping[str, Any], columns: Columns, source: str
) -> Labelled | None:
    """Return the example of a row with its label checked."""
    example = task.task.reader.read(row, columns, source)
    if example is None or not example.label:
        return example
    label = example.label
    if task.labels and label not in task.labels:
        if label in NO_LABEL:
            return example._replace(label="")
        if not label.isdecimal() or int(label) >= len(task.labels):
            names = ", ".join(task.labels)
            raise UserError(f"{example.source}: label '{label}'; {task.name} has: {names}")
        return example._replace(label=task.labels[int(label)])
    if task.range:
        (low, high), number = task.range, float(label.replace(",", "."))
        if not low <= number <= high:
            raise UserError(
                f"{example.source}: {label} is out of range; {task.name} has numbers from {low:g} "
                f"to {high:g}"
            )
    return example


HEADER = "index\tprediction\n"


def write_submission(
    model: Predictor | TunedWriter,
    task: SuiteTask,
    files: Sequence[Path],
    out: Path,
    report: Callable[[int, int, str], None],
) -> tuple[int, int]:
    """Write the predictions for test files.

    A row without a text has the first label, or the middle of the range, since a leaderboard wants
    every row.

    Args:
        report: called with the number of rows done, the number in all, and a note.

    Returns:
        The number of rows, and of those without a text.

    Raises:
        UserError: a file cannot be read or written.
    """
    rows = list(read_unlabelled(task, files))
    examples = LabelledTexts.of(example for _, example in rows if example is not None)
    done = 0

    def advance(number: int) -> None:
        nonlocal done
        done += number
        report(done, len(examples), f"{done:,} of {len(examples):,} rows")

    answers = iter(model.answer(examples, probabilities=False, done=advance)[0])
    default = task.labels[0] if task.labels else (sum(task.range) / 2 if task.range else "")
    lines = [
        f"{index}\t{_text(default if example is None else next(answers)[PREDICTION], task)}\n"
        for index, example in rows
    ]
    atomic.write_text(out, "".join([HEADER, *lines]))
    return len(rows), len(rows) - len(examples)


def _text(prediction: str | float, task: SuiteTask) -> str:
    """Return a prediction as text, a number within the range."""
    if isinstance(prediction, str):
        return prediction
    number = min(max(prediction, task.range[0]), task.range[1]) if task.range else prediction
    return f"{number:.3f}"
