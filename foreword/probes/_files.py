"""The files that a probe's setting names, and their rows."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from foreword.disk.compressed import COMPRESSIONS
from foreword.errors import UserError
from foreword.tables.table import ExampleTable, Row
from foreword.text.utf8 import half_a_character

Item = TypeVar("Item")


def evenly(items: Sequence[Item], limit: int) -> Sequence[Item]:
    """Return at most `limit` items, evenly spaced, since files are sorted; all with 0."""
    if not 0 < limit < len(items):
        return items
    return [items[n * len(items) // limit] for n in range(limit)]


def files_of(source: str, setting: str, formats: Sequence[str]) -> list[Path]:
    """Return the files of a file, a folder or a pattern, sorted; of a folder, those of a format.

    Args:
        source: the path or pattern.
        setting: the setting that names it, for messages.
        formats: suffixes such as `.jsonl`, each of which may be followed by one of a compression.

    Raises:
        UserError: there is no such file.
    """
    path = Path(source).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        ends = tuple(f"{end}{pack}" for end in formats for pack in ("", *COMPRESSIONS))
        files = [file for file in path.iterdir() if file.name.lower().endswith(ends)]
        if not files:
            raise UserError(f"{setting}: {source}: no {' or '.join(formats)} file in it")
    else:
        matches = map(Path, glob.glob(str(path), recursive=True))  # noqa: PTH207
        files = [file for file in matches if file.is_file()]
        if not files:
            raise UserError(f"{setting}: {source}: no such file or folder")
    return sorted(files)


def file_of(source: str, setting: str) -> Path:
    """Return the path of a file, which may not exist.

    Raises:
        UserError: it is a folder.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        raise UserError(f"{setting}: {source}: a folder; name the file in it")
    return path


def rows_of(table: ExampleTable, required: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the line and the values of each row of a table.

    Raises:
        UserError: a column is missing, a row is broken, or a text holds half a character.
    """
    for name in required:
        if name not in table.columns:
            columns = ", ".join(table.columns)
            raise UserError(f"{table.path}: no column '{name}'; its columns: {columns}")
    for line, row in table.sound_rows():
        require_whole_characters(row, f"{table.path}:{line}")
        yield line, row


def require_whole_characters(value: Any, where: str) -> None:
    """Check that the texts in a value, such as a row, can be written in UTF-8.

    Raises:
        UserError: one holds half a character, a lone surrogate, which JSON can spell.
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise half_a_character(where) from None
    elif isinstance(value, Mapping):
        for part in value.values():
            require_whole_characters(part, where)
    elif isinstance(value, list):
        for part in value:
            require_whole_characters(part, where)
