"""Files of tables as streams: decompressed, decoded, line by line, or as JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from foreword.disk import atomic
from foreword.disk.compressed import COMPRESSIONS, compression_of, decompressed
from foreword.errors import UserError
from foreword.tables.columns import LONGEST, too_long

IN_FOLDERS = (".tsv", ".csv", ".jsonl", ".parquet")  # tables; beside them .json is often a note
FORMATS = (*IN_FOLDERS, ".json")
SEPARATED = (".tsv", ".csv")  # those that may lack a header

Lines = Iterator[tuple[int, list[str]]]


def format_of(path: Path, formats: Mapping[str, str] | None = None) -> tuple[str, str | None]:
    """Return the format and the compression of a file, by its name.

    Args:
        path: the file.
        formats: endings of other formats; see `Task.formats`.

    Raises:
        UserError: the format is unknown.
    """
    compression, kind = compression_of(path), ending_of(path)
    kind = (formats or {}).get(kind, kind)
    known = dict.fromkeys((*FORMATS, *(formats or {}).values()))
    if kind not in known:
        raise UserError(
            f"{path}: tables are {', '.join(known)}, each also {' or '.join(COMPRESSIONS)}"
        )
    return kind, compression


def ending_of(path: Path) -> str:
    """Return the ending of a file in lower case, without that of its compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if compression_of(path) is not None:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a file as a stream of decompressed bytes.

    Raises:
        UserError: it cannot be read, here or later.
    """
    compression = compression_of(path)
    atomic.require_no_device(path, atomic.FROM_A_FILE)
    try:
        with path.open("rb") as file:
            yield decompressed(file, path)
    except OSError as error:
        reason = error.strerror or f"not readable as {compression}; fetch or compress it again"
        raise UserError(f"{path}: {reason}") from None


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file with their ends: `\\n`, `\\r` or `\\r\\n`, and no other mark.

    Raises:
        UserError: the file cannot be read or is not UTF-8, or a line is too long for a cell.
    """
    with _decoded(path) as text:
        number = 1
        while line := text.readline(LONGEST):
            if len(line) == LONGEST:
                raise too_long(f"{path}:{number}")
            yield line
            number += 1


def read_json(path: Path) -> Any:
    """Return the content of a file of JSON.

    Raises:
        UserError: the file cannot be read, or is not JSON.
    """
    with _decoded(path) as text:
        try:
            return json.load(text)
        except UnicodeDecodeError:
            raise
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: not JSON: {error}") from None


@contextmanager
def _decoded(path: Path) -> Iterator[TextIOWrapper]:
    """Open a file as text without a byte order mark; `_not_utf8` names what is not UTF-8."""
    with opened(path) as stream:
        try:
            yield TextIOWrapper(stream, "utf-8-sig", newline="")
        except UnicodeDecodeError:
            raise _not_utf8(path) from None


def tsv_lines(path: Path) -> Lines:
    """Yield the number and the cells of each line that is not empty; there is no quoting."""
    for number, line in enumerate(text_lines(path), 1):
        if line := line.removesuffix("\n").removesuffix("\r"):
            yield number, line.split("\t")


def csv_lines(path: Path) -> Lines:
    """Yield the first line's number and the cells of each row that is not empty.

    Raises:
        UserError: the file is not CSV.
    """
    before = csv.field_size_limit(LONGEST)
    reader = csv.reader(text_lines(path), strict=True)
    first = 1
    try:
        for cells in reader:
            if cells:
                yield first, cells
            first = reader.line_num + 1
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise UserError(f"{path}:{first}: a quote begins in this row and never ends") from None
        if "field larger" in str(error):
            raise too_long(f"{path}:{first}") from None
        raise UserError(f"{path}:{reader.line_num}: {error}; is it really CSV?") from None
    finally:
        csv.field_size_limit(before)


def _not_utf8(path: Path) -> UserError:
    """Return the error for the first byte that is not UTF-8, which is looked for by line."""
    start = 0
    with opened(path) as stream:
        for number, line in enumerate(stream, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return UserError(
                    f"{path}:{number}: byte {start + error.start:,} (0x{line[error.start]:02x}) is "
                    "not UTF-8; convert the file"
                )
            start += len(line)
    raise AssertionError("every line is UTF-8")
