"""`foreword.predict`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foreword.api import _arguments
from foreword.api._arguments import PathName, checked
from foreword.api._result import FactsAndRows
from foreword.api.progress import ProgressDisplay, progress_of
from foreword.disk import atomic
from foreword.errors import UserError
from foreword.tables.columns import PREDICTION, Columns
from foreword.tables.files import format_of
from foreword.tables.given import texts_or_table
from foreword.tables.read import read_table
from foreword.tables.table import BadRows, ExampleTable, chosen_columns, stream_of_lines
from foreword.tables.write import WRITTEN, WriteRows, write_json_lines, writing_rows
from foreword.tuning.predict_table import (
    SHOWN,
    HowToPredict,
    PredictionCounts,
    count_rows,
    output_types,
    predict_table,
)

if TYPE_CHECKING:
    from foreword.tuning.predict import TunedModel
    from foreword.tuning.written import TunedWriter

STANDARD = "-"  # standard input or output
ROWS_SHOWN = 5  # of a result


@dataclass(frozen=True, repr=False)
class PredictionResult(FactsAndRows):
    """Predictions for texts or for the rows of a file.

    Attributes:
        out: the file they were written to; None if they are in `rows`.
        rows: each row of the input with its prediction; empty if they were written to a file.
        counts: how many there are, and of which labels.
        notes: remarks, such as how many texts were cut; a line each.
    """

    out: Path | None
    rows: list[dict[str, Any]]
    counts: PredictionCounts
    notes: tuple[str, ...]

    @property
    def predictions(self) -> list[Any]:
        """The prediction of each row: a label, a number or a text; None for a row without text."""
        return [row[PREDICTION] for row in self.rows]

    def _facts(self) -> Mapping[str, Any]:
        labels = ", ".join(f"{n}: {count:,}" for n, count in self.counts.labels.most_common(10))
        return {
            "predictions": self.out,
            "rows": self.counts.rows,
            "labels": labels or None,
            "notes": "; ".join(self.notes) or None,
        }

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return self.rows[:ROWS_SHOWN]


@checked
def predict(
    tuned: PathName | TunedModel | TunedWriter,
    data: PathName | Iterable[Any],
    *,
    out: PathName | None = None,
    text: str | None = None,
    pair: str | None = None,
    columns: str = "",
    prefix: str | None = None,
    bad_rows: float | None = None,
    probabilities: bool = False,
    device: str = "auto",
    precision: str = "fp32",
    progress: bool | ProgressDisplay = True,
) -> PredictionResult:
    """Predict labels, numbers or texts with a fine-tuned model.

        foreword.predict("runs/books/tuned/reviews", ["a fine book"]).predictions
        foreword.predict("runs/books/tuned/reviews", "new.csv", out="predicted.csv")

    Each row of the input gets the columns `prediction` and, for labels, `probability`. A file is
    read and written in parts, so it may be larger than the memory.

    Args:
        tuned: the folder that `tune` wrote, or the model that `load` returned.
        data: a file, .tsv, .csv, .jsonl or .parquet, plain, .gz or .zst; or a table, such as a
            DataFrame; or texts, or pairs of texts in tuples, in a list, Series or array. "-" is
            standard input, a text per line.
        out: the file to write, .jsonl, .csv, .tsv or .parquet, or .conll for sentences, which must
            not exist; "-" is JSON lines on standard output; by default the rows are returned.
        text: column of the text; a number from 0 if the file has no header; default: as tuned.
        pair: column of a second text; default: as tuned.
        columns: names of all columns, `a,b,c`, if the file has no header.
        prefix: task prefix; default: the one it was tuned with.
        bad_rows: the share of rows that may be wrong: they keep their place without a prediction,
            and are counted and named; more are refused. Default: 0.01.
        probabilities: also give the probability of each label.
        device: auto, cpu, cuda or mps; `load` has chosen it for a model.
        precision: fp32, bf16 or auto; likewise.
        progress: whether to show the progress, or what shows it.

    Raises:
        UserError: the folder holds no fine-tuned model, or the data do not fit it.
    """
    # Check what is cheap first, then open the model and the table.
    target = None if out is None or out == STANDARD else _arguments.path(out, "--out")
    if target is not None:
        format_of(target, WRITTEN)
        atomic.require_writable(target, is_folder=False)
        if target.exists():
            raise UserError(f"{target}: already exists; choose another --out")
    display = progress_of(progress)
    model = _open(tuned, device, precision)
    named = {"text": text, "pair": pair}
    chosen = {field: column for field, column in named.items() if column is not None}
    if emulated := _precision_warning(model):
        display.warn(emulated)
    table, table_columns = _table(data, model, columns, chosen)
    how = HowToPredict(table_columns, BadRows.of(bad_rows), prefix, probabilities)
    types = output_types(table, model, how)
    total = count_rows(model, table, how)
    for warning in how.bad.notes:
        display.warn(warning)

    # Predict a window of rows at a time.
    rows: list[dict[str, Any]] = []
    with display, _writing(out, target, types, rows) as write:
        advance = display.stage("predicting")

        def report(done: int) -> None:
            if total is not None:
                advance(done, total, f"{done:,} of {total:,} rows")

        counts = predict_table(model, table, how, write, report)
    notes = _notes(counts, model.max_tokens)
    for note in notes:
        (display.warn if note.startswith("warning: ") else display.note)(note)
    return PredictionResult(target, rows, counts, (*how.bad.notes, *notes))


def _open(
    tuned: PathName | TunedModel | TunedWriter, device: str, precision: str
) -> TunedModel | TunedWriter:
    """Return the model, loaded if a folder is given.

    Raises:
        UserError: it is no fine-tuned model, or one that `load` has put on a device already.
    """
    from foreword.tuning.predict import TunedModel
    from foreword.tuning.written import TunedWriter, open_tuned

    if not isinstance(tuned, TunedModel | TunedWriter):
        return open_tuned(_arguments.path(tuned, "tuned"), device, precision)
    if (device, precision) != ("auto", "fp32"):
        raise UserError("device, precision: the model is loaded; choose them with foreword.load")
    return tuned


def _precision_warning(model: TunedModel | TunedWriter) -> str | None:
    """Return a warning that the hardware emulates the model's precision."""
    from foreword.train.device import precision_warning
    from foreword.tuning.written import TunedWriter

    opened = model.trained if isinstance(model, TunedWriter) else model
    return precision_warning(opened.device, opened.dtype)


def _table(
    data: Any, model: TunedModel | TunedWriter, names: str, chosen: Mapping[str, str]
) -> tuple[ExampleTable, Columns]:
    """Return the data as a table, and its columns of text and second text.

    Args:
        data: the argument `data`.
        model: the model.
        names: names of all columns of a file without a header.
        chosen: the columns that were named by an argument, by field of `Columns`.

    Raises:
        UserError: a file cannot be read, an item is not a text, or there are no columns to choose.
    """
    tuned_columns = replace(Columns(model.tuned_on.text, "", model.tuned_on.pair), **chosen)
    are_chosen = "text" in chosen or bool(chosen.get("pair"))
    if isinstance(data, str) and data == STANDARD:
        if are_chosen or names:
            raise UserError("--text, --pair, --columns: standard input has one text per line")
        return stream_of_lines("standard input", sys.stdin.buffer), Columns("text", "", "")
    if isinstance(data, str | PathLike):
        listed = [name.strip() for name in names.split(",")] if names else []
        file = _arguments.path(data, "data")
        by_number = tuned_columns.are_numbers and not listed
        table = read_table(file, listed, by_number, model.task.formats)
        needed = {tuned_columns.text, tuned_columns.pair if model.task.compares_texts else ""}
        if not needed <= {"", *table.columns} and "text" not in chosen:
            has_own = model.task.compares_texts or not model.task.reads_texts
            usual = model.task.columns if has_own else [tuned_columns]
            return table, model.task.asked(chosen_columns(table, usual, chosen))
        return table, tuned_columns
    if names:
        raise UserError("columns: names the columns of a file without a header; data is not a file")
    table, columns = texts_or_table(data, "data", tuned_columns, are_texts=model.task.reads_texts)
    if are_chosen and columns is not tuned_columns:
        raise UserError("text, pair: data are texts, not a table with columns to choose from")
    return table, columns


@contextmanager
def _writing(
    out: PathName | None, target: Path | None, types: Mapping[str, Any], rows: list[dict[str, Any]]
) -> Iterator[WriteRows]:
    """Yield a function that writes rows to a file or standard output, or appends them to `rows`."""
    if target is not None:
        with writing_rows(target, types) as write:
            yield write
    elif out == STANDARD:
        yield write_json_lines(sys.stdout)
    else:
        yield lambda some: rows.extend(dict(row.values) for row in some)


def _notes(counts: PredictionCounts, max_tokens: int) -> tuple[str, ...]:
    """Return what a reader of the predictions has to know, a line each."""
    from foreword.tuning.encoded import cut_warning

    notes = []
    if counts.cut:
        were = "text was" if counts.cut == 1 else "texts were"
        warning = cut_warning(counts.cut, counts.rows - counts.empty, max_tokens)
        notes.append(warning or f"{counts.cut:,} {were} cut to {max_tokens:,} tokens")
    if counts.empty:
        named = ", ".join(counts.empty_sources)
        more = ", ..." if counts.empty > SHOWN else ""
        have = "row has" if counts.empty == 1 else "rows have"
        notes.append(f"{counts.empty:,} {have} no text, and no prediction: {named}{more}")
    return tuple(notes)
