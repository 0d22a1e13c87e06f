"""Labelled examples from files: TSV, CSV, JSON lines and Parquet with named columns.

Columns of a file without a header have names given by `--columns`, or numbers from 0.

Each may be compressed (`.gz`, `.zst`). Tab-separated files have no quoting, like GLUE's; CSV files
do. A row that does not match its header is refused with its file and line; a row without text or
label is skipped and counted.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from foreword.data.text_files import COMPRESSIONS
from foreword.errors import UserError
from foreword.tuning.examples import AT_ONCE, LabelledTexts
from foreword.tuning.tasks._contract import Labelled

FORMATS = (".tsv", ".csv", ".jsonl", ".parquet")
FIELD_LIMIT = 1 << 30  # characters of one CSV field; Python's own limit is 131,072
CSV_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")  # with its end, as files give them

Row = tuple[int, dict[str, Any]]
Lines = Iterator[tuple[int, list[str]]]


@dataclass(frozen=True)
class ExampleTable:
    """The rows of a file, with named columns.

    Attributes:
        path: the file.
        columns: names of the columns, in order.
        rows: returns an iterator over each row's line (row number in Parquet), from 1, and its
            values by column; a broken row raises a UserError when it is read.
    """

    path: Path
    columns: tuple[str, ...]
    rows: Callable[[], Iterator[Row]]


@dataclass(frozen=True)
class Columns:
    """The columns of text, label and second text; `pair` is "" if there is one text per row.

    Each is a name, or a number from 0 in a file without a header.
    """

    text: str = "text"
    label: str = "label"
    pair: str = ""

    @property
    def are_numbers(self) -> bool:
        """Whether the columns are numbers.

        Raises:
            UserError: some are numbers and some are names.
        """
        is_number = [name.isdecimal() for name in (self.text, self.label, self.pair) if name]
        if any(is_number) and not all(is_number):
            names = ", ".join(f"'{name}'" for name in (self.text, self.pair, self.label) if name)
            raise UserError(
                f"--text, --pair, --label: {names}: all by name, or all by number where the file "
                "has no header"
            )
        return all(is_number)


def read_table(
    path: str | Path, columns: Sequence[str] = (), are_numbers: bool = False
) -> ExampleTable:
    """Read a table.

    Args:
        path: `.tsv`, `.csv`, `.jsonl` or `.parquet`, perhaps with `.gz` or `.zst`.
        columns: the names of the columns if the file has no header; else empty.
        are_numbers: `.tsv` and `.csv` have no header, and columns are named "0", "1", ...

    Raises:
        UserError: the file is missing, broken, or of an unknown format.
    """
    # Tell format and compression by the file's suffixes.
    path = Path(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = (
        COMPRESSIONS.get(suffixes.pop()) if suffixes and suffixes[-1] in COMPRESSIONS else None
    )
    kind = suffixes[-1] if suffixes else ""
    if kind not in FORMATS:
        raise UserError(
            f"{path}: tables are {', '.join(FORMATS)}, each also {' or '.join(COMPRESSIONS)}"
        )
    if columns and kind in (".jsonl", ".parquet"):
        raise UserError(f"{path}: --columns is for files without a header; {kind} names its own")
    if twice := sorted({name for name in columns if list(columns).count(name) > 1}):
        raise UserError(f"--columns: '{twice[0]}' occurs twice")
    # Read it as that format.
    data = _bytes(path, compression)
    if kind == ".parquet":
        return _parquet(path, data)
    text = _decode(path, data)
    if kind == ".jsonl":
        return _jsonl(path, text)
    lines = partial(_tsv_lines, text) if kind == ".tsv" else partial(_csv_lines, path, text)
    return _separated(path, lines, columns, are_numbers=are_numbers)


def labelled(table: ExampleTable, columns: Columns) -> tuple[LabelledTexts, int]:
    """Return the examples of a table, and how many rows were skipped without text or label.

    Raises:
        UserError: a column is missing, a row is broken, or there is no example.
    """
    # Check the columns.
    options = {"--text": columns.text, "--label": columns.label}
    if columns.pair:
        options["--pair"] = columns.pair
    is_named = {name.isdecimal() for name in options.values()} == {False}
    hint = ", by number from 0 if the file has no header" if is_named else ""
    for option, name in options.items():
        if name not in table.columns:
            raise UserError(
                f"{table.path}: no column '{name}'; its columns: {', '.join(table.columns)}; "
                f"choose one with {option}{hint}"
            )
    # Read the examples.
    skipped = 0

    def complete_rows() -> Iterator[Labelled]:
        nonlocal skipped
        for line, row in table.rows():
            source = f"{table.path}:{line}"
            values = [_text(row.get(name), source) for name in options.values()]
            if all(value.strip() for value in values):
                text, label, *pair = values
                yield Labelled(text, label.strip(), pair[0] if pair else None, source)
            else:
                skipped += 1

    examples = LabelledTexts.of(complete_rows())
    if not examples:
        raise UserError(f"{table.path}: no row has both a text and a label")
    return examples, skipped


def _bytes(path: Path, compression: str | None) -> bytes:
    try:
        with path.open("rb") as file:
            if compression is None:
                return file.read()
            with pa.CompressedInputStream(file, compression) as stream:
                return bytes(stream.read())
    except OSError as error:
        reason = error.strerror or f"not readable as {compression}; fetch or compress it again"
        raise UserError(f"{path}: {reason}") from None


def _decode(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}:{line}: byte {error.start:,} (0x{data[error.start]:02x}) is not UTF-8; "
            "convert the file"
        ) from None


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text without their ends; no list of them is made."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


def _tsv_lines(text: str) -> Lines:
    for number, line in enumerate(_lines(text), 1):
        if line := line.removesuffix("\r"):
            yield number, line.split("\t")


def _csv_lines(path: Path, text: str) -> Lines:
    before = csv.field_size_limit(FIELD_LIMIT)
    reader = csv.reader((line[0] for line in CSV_LINE.finditer(text)), strict=True)
    try:
        first = 1
        for cells in reader:
            if cells:
                yield first, cells
            first = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: {error}; is it really CSV?") from None
    finally:
        csv.field_size_limit(before)


def _separated(
    path: Path, lines: Callable[[], Lines], columns: Sequence[str], *, are_numbers: bool
) -> ExampleTable:
    names, has_header = [name.strip() for name in columns], False
    if not names:
        _, first = next(lines(), (1, []))
        cells = [cell.strip() for cell in first]
        names = [str(n) for n in range(len(cells))] if are_numbers else cells
        has_header = names == cells  # of numbered columns too, where it holds their numbers
    if not names:
        raise UserError(f"{path}: is empty")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{path}: two columns are named '{twice[0]}'; does it have a header?")

    def rows() -> Iterator[Row]:
        for number, cells in itertools.islice(lines(), int(has_header), None):
            if len(cells) != len(names):
                raise UserError(
                    f"{path}:{number}: {_columns(len(cells))}, and {_columns(len(names))} named"
                    f"{'' if columns else ' in the header'}: {', '.join(names)}"
                )
            yield number, dict(zip(names, cells, strict=True))

    return ExampleTable(path, tuple(names), rows)


def _columns(count: int) -> str:
    return f"{count} column" if count == 1 else f"{count} columns"


def _jsonl(path: Path, text: str) -> ExampleTable:
    def rows() -> Iterator[Row]:
        for number, line in enumerate(_lines(text), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}:{number}: not JSON: {error}") from None
            if not isinstance(row, dict):
                raise UserError(f"{path}:{number}: expected an object with named values")
            yield number, row

    names: dict[str, None] = {}
    for _, row in rows():
        names.update(dict.fromkeys(row))
    if not names:
        raise UserError(f"{path}: is empty")
    return ExampleTable(path, tuple(names), rows)


def _parquet(path: Path, data: bytes) -> ExampleTable:
    try:
        table = pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"{path}: not a Parquet file that can be read: {reason}") from None

    def rows() -> Iterator[Row]:
        for number in range(0, len(table), AT_ONCE):
            some = table.slice(number, AT_ONCE)
            try:
                yield from enumerate(some.to_pylist(), number + 1)
            except UnicodeDecodeError:
                raise _not_utf8(path, some, number + 1) from None

    return ExampleTable(path, tuple(table.column_names), rows)


def _not_utf8(path: Path, table: pa.Table, first: int) -> UserError:
    """Return the error for the first text that is not UTF-8; the table's first row is `first`."""
    for number in range(len(table)):
        for name in table.column_names:
            try:
                table.column(name)[number].as_py()
            except UnicodeDecodeError as error:
                byte = f"byte {error.start:,} (0x{error.object[error.start]:02x})"
                return UserError(
                    f"{path}:{first + number}: column '{name}', {byte} is not UTF-8; convert the "
                    "file"
                )
    raise AssertionError("every text is UTF-8")


def _text(value: Any, where: str) -> str:
    """Return a cell as text; booleans as JSON writes them."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise UserError(f"{where}: expected text or a number, got {type(value).__name__}")
