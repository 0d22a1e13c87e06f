"""Labelled examples from files: TSV, CSV, JSON lines and Parquet with named columns.

Columns of a file without a header have names given by `--columns`, or numbers from 0.

Each may be compressed (`.gz`, `.zst`). Tab-separated files have no quoting, like GLUE's; CSV files
do. A row that does not match its header is refused with its file and line; a row without text or
label is skipped and counted.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from foreword.disk.compressed import BLOCK, copied
from foreword.errors import UserError
from foreword.tables import race, squad
from foreword.tables.conll import conll_table, conllu_table
from foreword.tables.examples import AT_ONCE
from foreword.tables.files import (
    SEPARATED,
    Lines,
    csv_lines,
    format_of,
    opened,
    read_json,
    text_lines,
    tsv_lines,
)
from foreword.tables.squad import PASSAGE
from foreword.tables.table import BadRow, ExampleTable, NestedRow, Row, nested_names

INT64 = range(-(1 << 63), 1 << 63)


def read_table(
    path: str | Path,
    columns: Sequence[str] = (),
    are_numbers: bool = False,
    formats: Mapping[str, str] | None = None,
    *,
    skips_broken: bool = False,
) -> ExampleTable:
    """Read a table.

    Args:
        path: a file with one of the endings of `table_files.FORMATS`, perhaps with `.gz` or `.zst`;
            or a folder of RACE's articles.
        columns: the names of the columns if the file has no header; else empty.
        are_numbers: `.tsv` and `.csv` have no header, and columns are named "0", "1", ...
        formats: endings read as another format; see `Task.formats`.
        skips_broken: whether a row of `.tsv` or `.csv` with too few or too many cells is a row
            without values, and not refused.

    Raises:
        UserError: the file is missing, broken, or of an unknown format.
    """
    path = Path(path)
    if path.is_dir():
        return _race(path, lambda: race.folder_questions(path))
    kind, _ = format_of(path, formats)
    if columns and kind not in SEPARATED:
        raise UserError(f"{path}: --columns is for files without a header; {kind} names its own")
    if twice := sorted({name for name in columns if list(columns).count(name) > 1}):
        raise UserError(f"--columns: '{twice[0]}' occurs twice")
    if kind == ".parquet":
        return _parquet(path)
    if kind == ".jsonl":
        return _jsonl(path)
    if kind == ".json":
        return _json(path)
    if kind in (".conllu", ".conll"):
        return conllu_table(path) if kind == ".conllu" else conll_table(path)
    lines = partial(tsv_lines if kind == ".tsv" else csv_lines, path)
    return _separated(path, lines, columns, are_numbers=are_numbers, skips_broken=skips_broken)


def _separated(
    path: Path,
    lines: Callable[[], Lines],
    columns: Sequence[str],
    *,
    are_numbers: bool,
    skips_broken: bool,
) -> ExampleTable:
    names, has_header = [name.strip() for name in columns], False
    begun: list[Lines] = []  # the file as opened for its header, for the first reading
    if not names:
        opened = lines()
        number, first = next(opened, (1, []))
        cells = [cell.strip() for cell in first]
        names = [str(n) for n in range(len(cells))] if are_numbers else cells
        has_header = names == cells  # of numbered columns too, where it holds their numbers
        begun = [opened if has_header else itertools.chain([(number, first)], opened)]
    if not names:
        raise UserError(f"{path}: is empty")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{path}: two columns are named '{twice[0]}'; does it have a header?")

    def rows() -> Iterator[Row]:
        unread = begun.pop() if begun else itertools.islice(lines(), int(has_header), None)
        for number, cells in unread:
            if len(cells) == len(names):
                yield number, dict(zip(names, cells, strict=True))
            elif skips_broken:
                yield number, {}
            else:
                reason = (
                    f"{path}:{number}: {_columns(len(cells))}, and {_columns(len(names))} named"
                    f"{'' if columns else ' in the header'}: {', '.join(names)}"
                )
                yield number, BadRow(reason, dict(zip(names, cells, strict=False)))

    return ExampleTable(path, tuple(names), rows, dict.fromkeys(names, pa.string()))


def _columns(count: int) -> str:
    return f"{count} column" if count == 1 else f"{count} columns"


def _jsonl(path: Path) -> ExampleTable:
    def rows() -> Iterator[Row]:
        for number, line in enumerate(text_lines(path), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield number, BadRow(f"{path}:{number}: not JSON: {error}")
            else:
                yield number, _row(row, path, number)

    return _objects(path, rows)


def _json(path: Path) -> ExampleTable:
    """Return a list of objects as a table, and a file in SQuAD's layout as one of questions.

    A file of JSON lines, which some programs call `.json` too, is read as what it is.
    """
    try:
        data = read_json(path)
    except UserError as error:
        if "Extra data" in str(error):
            return _jsonl(path)
        raise
    data = data.get("data", data) if isinstance(data, dict) else data
    if squad.is_layout(data):
        rows = squad.question_rows(data, str(path))
        types = dict.fromkeys(squad.COLUMNS, pa.string())
        return ExampleTable(path, squad.COLUMNS, lambda: enumerate(rows, 1), types, usual=PASSAGE)
    if not isinstance(data, list):
        raise UserError(
            f"{path}: JSON, but not a list of objects (for --task span: SQuAD's layout); save the "
            "rows as a list (pandas: orient='records')"
        )

    def objects() -> Iterator[Row]:
        for number, row in enumerate(data, 1):
            yield number, _row(row, path, number)

    return _objects(path, objects)


def _row(value: Any, path: Path, number: int) -> dict[str, Any]:
    """Return a JSON object as a row."""
    if isinstance(value, dict):
        return NestedRow(value)
    return BadRow(f"{path}:{number}: expected an object with named values")


def _objects(path: Path, rows: Callable[[], Iterator[Row]]) -> ExampleTable:
    """Return JSON objects as a table, whose columns are the names that any of them has."""
    types: dict[str, set[str]] = {}
    nested: set[str] = set()
    first_bad = ""
    for _, row in rows():
        first_bad = first_bad or (row.reason if isinstance(row, BadRow) else "")
        for name, value in row.items():
            types.setdefault(name, set()).add(_json_type(value))
            if isinstance(value, dict):
                nested.update(_names_within(name, value))
    if not types:
        raise UserError(first_bad or f"{path}: is empty")
    if types.keys() >= set(race.FIELDS[:3]):
        return _race(
            path,
            lambda: itertools.chain.from_iterable(
                race.article_questions(row, f"{path}:{number}") for number, row in rows()
            ),
        )
    kinds = {n: _arrow_type(t) for n, t in types.items()}
    return ExampleTable(path, tuple(types), rows, kinds, nested=frozenset(nested))


def _names_within(name: str, table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the values in the tables of a cell."""
    for key, value in table.items():
        yield f"{name}.{key}"
        if isinstance(value, dict):
            yield from _names_within(f"{name}.{key}", value)


def _json_type(value: Any) -> str:
    """Return the type of a JSON value; "other" for what an Arrow column holds only as text."""
    if isinstance(value, int) and not isinstance(value, bool) and value not in INT64:
        return "other"
    known = {type(None): "", bool: "bool", int: "int", float: "float", str: "str"}
    return known.get(type(value), "other")


def _arrow_type(types: set[str]) -> Any:
    """Return the type of a column whose JSON values are of `types`; a text if they differ."""
    by_types = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64()}
    names = types - {""}
    if names == {"int", "float"}:
        return pa.float64()
    return by_types.get(names.pop(), pa.string()) if len(names) == 1 else pa.string()


def _race(path: Path, questions: Callable[[], Iterable[dict[str, Any]]]) -> ExampleTable:
    """Return RACE's questions as a table with a row for each."""
    types = dict.fromkeys(race.COLUMNS, pa.string())
    return ExampleTable(path, race.COLUMNS, lambda: enumerate(questions(), 1), types)


def _parquet(path: Path) -> ExampleTable:
    with _parquet_file(path) as file:
        schema = file.schema_arrow

    def rows(names: Sequence[str] | None = None) -> Iterator[Row]:
        number = 1
        with _parquet_file(path) as file:
            for batch in file.iter_batches(AT_ONCE, columns=names):
                try:
                    yield from enumerate(map(NestedRow, batch.to_pylist()), number)
                except UnicodeDecodeError:
                    raise _not_utf8(path, pa.Table.from_batches([batch]), number) from None
                number += len(batch)

    types = dict(zip(schema.names, schema.types, strict=True))
    nested = nested_names(schema)
    return ExampleTable(path, tuple(schema.names), rows, types, rows_of=rows, nested=nested)


@contextmanager
def _parquet_file(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file, or a decompressed temporary one, since it is read from its end."""
    is_plain = format_of(path)[1] is None
    with opened(path) as stream, nullcontext(stream) if is_plain else copied(stream) as source:
        try:
            yield pq.ParquetFile(source, pre_buffer=False, buffer_size=BLOCK)
        except (pa.ArrowException, OSError) as error:
            reason = str(error).split("\n")[0]
            raise UserError(f"{path}: not a Parquet file that can be read: {reason}") from None


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
