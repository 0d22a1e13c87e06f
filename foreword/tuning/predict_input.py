"""Rows to predict for: a file, a table, texts, or lines of standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from foreword.errors import UserError
from foreword.tables.columns import Columns
from foreword.tables.given import texts_or_table
from foreword.tables.read import read_table
from foreword.tables.table import ExampleTable, chosen_columns, stream_of_lines
from foreword.tuning.predictor import Predictor
from foreword.tuning.tuned_model import TunedWriter

STANDARD = "-"  # standard input or output


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
    if isinstance(data, str | PathLike):
        return _file(Path(data), model, columns, chosen, names)
    if names:
        raise UserError("columns: names the columns of a file without a header; data is not a file")
    table, used = texts_or_table(data, "data", columns, are_texts=model.task.reader.takes_texts)
    if are_chosen and used is not columns:
        raise UserError("text, pair: data are texts, not a table with columns to choose from")
    return table, used


def _file(
    file: Path,
    model: Predictor | TunedWriter,
    columns: Columns,
    chosen: Mapping[str, str],
    names: Sequence[str],
) -> tuple[ExampleTable, Columns]:
    """Return a file as a table, and its columns: those chosen, tuned on, or of the task."""
    reader, by_number = model.task.reader, columns.are_numbers and not names
    table = read_table(file, names, by_number, reader.formats)
    needed = {columns.text, columns.pair if reader.compares_texts else ""}
    if not needed <= {"", *table.columns} and "text" not in chosen:
        has_own = reader.compares_texts or not reader.takes_texts
        usual = reader.columns if has_own else [columns]
        return table, reader.to_predict(chosen_columns(table, usual, chosen))
    return table, columns
