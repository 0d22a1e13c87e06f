"""Tables written row by row: JSON lines, CSV, TSV and Parquet, by the ending of the name."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from io import RawIOBase, TextIOWrapper
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.tables.columns import PREDICTION
from foreword.tables.files import format_of
from foreword.text.utf8 import half_a_character

WRITTEN = MappingProxyType({".conll": ".conll", ".json": ".json"})  # besides tables
ID = "id"  # the column with the name of a question
NOTHING = "_"  # in a column of a .conll file
BREAKS = ("\t", "\n", "\r")  # what a cell of a TSV file cannot hold


class SourcedRow(NamedTuple):
    """A row, and where it came from (`a.tsv:17`), for messages."""

    source: str
    values: Mapping[str, Any]


WriteRows = Callable[[Sequence[SourcedRow]], None]


@contextmanager
def writing_rows(out: Path, types: Mapping[str, Any]) -> Iterator[WriteRows]:
    """Open a table to write to; it takes its name only once it is complete and on disk.

    Args:
        out: `.jsonl`, `.csv`, `.tsv`, `.parquet` or `.conll`; text also `.gz` or `.zst`.
        types: the Arrow type of each column, in their order.

    Raises:
        UserError: the format is unknown, or the file cannot be written.
    """
    kind, compression = format_of(out, WRITTEN)
    with atomic.writing(out, "wb") as file:
        if kind == ".parquet":
            if compression is not None:
                raise UserError(f"{out}: Parquet files are compressed inside; choose another --out")
            schema = pa.schema([pa.field(name, type_) for name, type_ in types.items()])
            with pq.ParquetWriter(file, schema) as writer:
                yield lambda rows: _write_arrow(writer, schema, rows)
            return
        stream: Any = _LeftOpen(file)
        if compression is not None:
            stream = pa.CompressedOutputStream(stream, compression)
        with TextIOWrapper(stream, "utf-8", newline="") as text:
            if kind == ".conll":
                yield _write_sentences(text, types)
            elif kind == ".json":
                yield from _writing_by_id(text, types)
            elif kind == ".jsonl":
                yield write_json_lines(text)
            else:
                yield _write_cells(text, kind, types)


class _LeftOpen(RawIOBase):
    """A stream into a file that stays open when the stream is closed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._file.write(data)


def write_json_lines(file: TextIO) -> WriteRows:
    """Return what writes each row as a JSON object of one line."""

    def write(rows: Sequence[SourcedRow]) -> None:
        for source, values in rows:
            with _naming(source):
                file.write(_json(values) + "\n")

    return write


def _write_cells(file: TextIO, kind: str, types: Mapping[str, Any]) -> WriteRows:
    """Return what writes rows of cells; the header is written at once."""
    writer = csv.writer(file, lineterminator="\n")

    def write(rows: Sequence[SourcedRow]) -> None:
        for source, values in rows:
            cells = [_cell(values.get(name)) for name in types]
            with _naming(source):
                if kind == ".csv":
                    writer.writerow(cells)
                    continue
                if any(mark in cell for cell in cells for mark in BREAKS):
                    raise UserError(
                        f"{source}: a cell has a tab or a line break, which TSV cannot hold; use "
                        "--out with .csv or .jsonl"
                    )
                file.write("\t".join(cells) + "\n")

    write([SourcedRow("the header", {name: name for name in types})])
    return write


def _writing_by_id(file: TextIO, types: Mapping[str, Any]) -> Iterator[WriteRows]:
    """Yield what writes predictions by the column `id`, as SQuAD's script reads them."""
    if ID not in types:
        raise UserError("--out: .json holds predictions by id, and there is no column 'id'")
    between = ""

    def write(rows: Sequence[SourcedRow]) -> None:
        nonlocal between
        for source, values in rows:
            with _naming(source):
                key, prediction = _json(str(values.get(ID))), _json(values.get(PREDICTION) or "")
                file.write(f"{between}{key}: {prediction}")
            between = ",\n"

    file.write("{")
    yield write
    file.write("}\n")


def _write_sentences(file: TextIO, types: Mapping[str, Any]) -> WriteRows:
    """Return what writes a word per line and a blank line after each sentence.

    Its columns are those that have a text for each word.
    """
    names = [name for name, kind in types.items() if kind == pa.list_(pa.string())]
    if len(names) < 2:
        raise UserError("--out: .conll is for tagged words in lists; use .csv or .jsonl")

    def write(rows: Sequence[SourcedRow]) -> None:
        for source, values in rows:
            columns = [values.get(name) or [] for name in names]
            for cells in itertools.zip_longest(*columns):
                line = "\t".join(NOTHING if cell is None else str(cell) for cell in cells)
                with _naming(source):
                    file.write(line + "\n")
            file.write("\n")

    return write


def _write_arrow(writer: pq.ParquetWriter, schema: Any, rows: Sequence[SourcedRow]) -> None:
    is_text = {field.name for field in schema if pa.types.is_string(field.type)}
    values = [
        {name: _text_or_none(v) if name in is_text else v for name, v in row.values.items()}
        for row in rows
    ]
    try:
        writer.write_table(pa.Table.from_pylist(values, schema))
    except UnicodeEncodeError:
        for source, row in rows:
            with _naming(source):
                _json(row).encode()
                pa.array([v for v in row.values() if isinstance(v, str)], pa.string())
        raise


@contextmanager
def _naming(source: str) -> Iterator[None]:
    """Turn a lone surrogate into a UserError that names the row."""
    try:
        yield
    except UnicodeEncodeError:
        raise half_a_character(source) from None


def _text_or_none(value: Any) -> str | None:
    """Return a value as the text of a cell; None for a missing value."""
    return None if _is_missing(value) else _cell(value)


def _cell(value: Any) -> str:
    """Return a value as a cell of CSV or TSV.

    None and nan become an empty cell, infinity `inf`, dates and times ISO 8601, bytes hexadecimal,
    lists and tables JSON.
    """
    if _is_missing(value):
        return ""
    value = _plain(value)
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value if isinstance(value, str) else stored.to_json(value)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _json(value: Any) -> str:
    """Return a value as JSON; types that JSON lacks become text, and non-finite numbers null."""
    try:
        return stored.to_json(value)
    except TypeError:
        return stored.to_json(_plain(value))


def _plain(value: Any) -> Any:
    """Return an Arrow value as a type that JSON has."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Decimal):
        return format(value, "f")
    return value.hex() if isinstance(value, bytes) else str(value)
