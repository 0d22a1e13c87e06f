"""Predictions for rows: a window at a time, in their order and in bounded memory."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from foreword.errors import UserError
from foreword.tables.columns import PREDICTION, Columns
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tables.given import texts_or_table
from foreword.tables.read import read_table
from foreword.tables.table import (
    BadRows,
    ExampleTable,
    chosen_columns,
    require_columns,
    stream_of_lines,
)
from foreword.tables.write import SourcedRow, WriteRows
from foreword.tuning.encoded import cut_warning
from foreword.tuning.packed_examples import WINDOW
from foreword.tuning.tasks._contract import END, ENTITIES, PROBABILITY, START
from foreword.tuning.tuned_model import Predictor, TunedWriter

STANDARD = "-"  # standard input or output
SHOWN = 3  # rows without text that are named


@dataclass(frozen=True)
class PredictOptions:
    """How rows become examples, and which answers are written.

    Attributes:
        bad: judges rows that are wrong, which keep their place without an answer.
        prefix: the task prefix; None for the one of training.
    """

    columns: Columns
    bad: BadRows
    prefix: str | None = None
    probabilities: bool = False


@dataclass
class PredictionCounts:
    """Counts of rows, cut texts and predicted labels.

    Attributes:
        empty: rows without text, which have no prediction.
        empty_sources: the first of them.
        labels: predictions by label, if the task has labels.
    """

    rows: int = 0
    empty: int = 0
    empty_sources: list[str] = field(default_factory=list)
    cut: int = 0
    labels: Counter[str] = field(default_factory=Counter)

    def notes(self, max_tokens: int) -> tuple[str, ...]:
        """Return what a reader of the predictions has to know, a line each."""
        notes = []
        if self.cut:
            were = "text was" if self.cut == 1 else "texts were"
            warning = cut_warning(self.cut, self.rows - self.empty, max_tokens)
            notes.append(warning or f"{self.cut:,} {were} cut to {max_tokens:,} tokens")
        if self.empty:
            named = ", ".join(self.empty_sources)
            more = ", ..." if self.empty > SHOWN else ""
            have = "row has" if self.empty == 1 else "rows have"
            notes.append(f"{self.empty:,} {have} no text, and no prediction: {named}{more}")
        return tuple(notes)


def rows_to_predict(
    data: str | PathLike[str] | Iterable[Any],
    model: Predictor | TunedWriter,
    chosen: Mapping[str, str],
    names: Sequence[str],
) -> tuple[ExampleTable, Columns]:
    """Return data as a table, and its columns of text and second text.

    Args:
        data: a file, a table, texts, or pairs of texts in tuples.
        chosen: the columns that are named, by field of `Columns`.
        names: the names of all columns, of a file without a header.

    Raises:
        UserError: a file cannot be read, an item is not a text, or there are no columns to choose.
    """
    columns = replace(Columns(model.tuned_on.text, "", model.tuned_on.pair), **chosen)
    are_chosen = "text" in chosen or bool(chosen.get("pair"))
    if isinstance(data, str) and data == STANDARD:
        if are_chosen or names:
            raise UserError("--text, --pair, --columns: standard input has one text per line")
        return stream_of_lines("standard input", sys.stdin.buffer), Columns("text", "", "")
    reader = model.task.reader
    if isinstance(data, str | PathLike):
        by_number = columns.are_numbers and not names
        table = read_table(Path(data), names, by_number, reader.formats)
        needed = {columns.text, columns.pair if reader.compares_texts else ""}
        if needed <= {"", *table.columns} or "text" in chosen:
            return table, columns
        has_own = reader.compares_texts or not reader.takes_texts
        usual = reader.columns if has_own else [columns]
        return table, reader.to_predict(chosen_columns(table, usual, chosen))
    if names:
        raise UserError("columns: names the columns of a file without a header; data is not a file")
    table, used = texts_or_table(data, "data", columns, are_texts=reader.takes_texts)
    if are_chosen and used is not columns:
        raise UserError("text, pair: data are texts, not a table with columns to choose from")
    return table, used


def output_types(
    table: ExampleTable, model: Predictor | TunedWriter, how: PredictOptions
) -> dict[str, Any]:
    """Return the Arrow type of each column that is written: the table's, then the answers'.

    Raises:
        UserError: the model and the table do not go together.
    """
    require_columns(table, how.columns)
    model.tuned_on.require_form(is_pair=bool(how.columns.pair))
    model.tuned_on.with_prefix(Labelled(""), how.prefix)
    if how.prefix is not None and model.task.reader.compares_texts:
        raise UserError("--prefix: this model reads texts as they are")
    types = model.answer_types(probabilities=how.probabilities, is_pair=bool(how.columns.pair))
    if pa.types.is_list(table.types.get(how.columns.text, pa.null())):  # words have no places
        types = {n: t for n, t in types.items() if n not in (START, END, ENTITIES)}
    if existing := [name for name in types if name in table.columns]:
        raise UserError(
            f"{table.path}: has a column '{existing[0]}' already, and predictions would "
            "overwrite it; rename it"
        )
    return {**table.types, **types}


def count_rows(
    model: Predictor | TunedWriter, table: ExampleTable, how: PredictOptions
) -> int | None:
    """Count the rows by reading all; None for a stream, which can be read only once.

    Raises:
        UserError: too many rows are wrong.
    """
    if table.is_stream:
        return None
    return sum(
        1 for _ in how.bad.examples(table, table.rows(), how.columns, model.task.reader.read)
    )


def predict_table(
    model: Predictor | TunedWriter,
    table: ExampleTable,
    how: PredictOptions,
    write: WriteRows,
    report: Callable[[int], None],
) -> PredictionCounts:
    """Write each row of a table with the model's answer.

    Args:
        write: takes the rows of a window, in order.
        report: called after each batch with the rows done.

    Raises:
        UserError: a row is broken, or cannot be written.
    """
    counts = PredictionCounts()
    rows = table.rows()
    while some := list(itertools.islice(rows, WINDOW)):
        write(list(_answered(model, table, how, some, counts, report)))
        report(counts.rows)
    return counts


def _answered(
    model: Predictor | TunedWriter,
    table: ExampleTable,
    how: PredictOptions,
    rows: list[tuple[int, dict[str, Any]]],
    counts: PredictionCounts,
    report: Callable[[int], None],
) -> Iterator[SourcedRow]:
    sources = [table.source_of(line) for line, _ in rows]
    again = BadRows(0.0 if table.is_stream else 1.0)  # `count_rows` has judged the others
    examples = list(again.examples(table, rows, how.columns, model.task.reader.read))
    predicted = counts.rows

    def done(number: int) -> None:
        nonlocal predicted
        predicted += number
        report(predicted)

    answers, cut = model.answer(
        LabelledTexts.of(
            model.tuned_on.with_prefix(example, how.prefix)
            for example in examples
            if example is not None
        ),
        probabilities=how.probabilities,
        done=done,
    )
    # Rows without text keep their place, with empty answers.
    is_pair = bool(how.columns.pair)
    types = model.answer_types(probabilities=how.probabilities, is_pair=is_pair)
    none = dict.fromkeys(types)
    answer_rows = iter(answers)
    counts.cut += cut
    for (_, row), example, source in zip(rows, examples, sources, strict=True):
        answer = none if example is None else next(answer_rows)
        counts.rows += 1
        if source in again.sources:
            pass  # counted and named already
        elif example is None:
            counts.empty += 1
            counts.empty_sources += [source] * (len(counts.empty_sources) < SHOWN)
        elif PROBABILITY in answer:
            prediction = answer[PREDICTION]
            predictions = prediction if isinstance(prediction, list) else [prediction]
            counts.labels.update(label for label in predictions if label in model.labels)
        yield SourcedRow(source, {**row, **answer})
