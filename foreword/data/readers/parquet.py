"""Parquet: a column holds the texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

from foreword.data.readers._contract import Reader
from foreword.data.remote import is_url
from foreword.data.text_files import TextFile
from foreword.disk.compressed import BLOCK, compression_of, copied
from foreword.errors import UserError
from foreword.types import Document

_ROWS = 1024  # decoded at once


@dataclass(frozen=True)
class Parquet(Reader):
    """Parquet with the text in the column `field`; only that column is read, in pieces.

    A null or a blank text is an empty document. With `target`, the text and the value of that
    column are a pair. A file that is compressed as a whole is decompressed to a temporary one
    while it is read.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)
    has_sides: ClassVar[bool] = True

    def read(self, source: TextFile) -> Iterator[Document]:
        """Yield the documents of a file.

        Raises:
            UserError: it is not Parquet or cut short, has no such column, or is not UTF-8.
        """
        import pyarrow as pa
        from pyarrow import parquet

        path = source.path
        with _plain(source) as plain:
            try:
                # By default pyarrow reads the column of all row groups ahead, and holds it.
                file = parquet.ParquetFile(plain, pre_buffer=False, buffer_size=BLOCK)
            except (pa.ArrowInvalid, OSError) as error:
                raise UserError(
                    f"{path}: not a Parquet file, or one cut short ({_line(error)}); fetch it again"
                ) from None
            with file:
                yield from _documents(file, source)


@contextmanager
def _plain(source: TextFile) -> Iterator[Path | IO[bytes]]:
    """Yield the file, or a decompressed temporary one, since Parquet is read from its end."""
    if compression_of(source.path) is not None:
        with source.open() as stream, copied(stream) as copy:
            yield copy
    elif is_url(source.path):
        with source.path.open("rb") as file:
            yield file
    else:
        yield source.path


def _documents(file: Any, source: TextFile) -> Iterator[Document]:
    """Yield the documents of an open file."""
    import pyarrow as pa

    path, settings = source.path, source.settings
    names = {"field": settings.field}
    if settings.target:
        names["target"] = settings.target
    for setting, name in names.items():
        _check(file.schema_arrow, path, name, setting)
    size, done, rows = path.stat().st_size, 0, max(1, file.metadata.num_rows)
    for batch in _batches(file, source, list(names.values())):
        columns = [
            batch.column(name).cast(pa.string(), safe=False).cast(pa.binary()).to_pylist()
            for name in names.values()
        ]
        for values in zip(*columns, strict=True):
            done += 1
            where = f"{path}:{done}"
            texts = [source.decode(data or b"", where) for data in values]
            if settings.target:
                yield from source.pair(texts[0], texts[1], done)
            else:
                yield from source.document(texts[0], done)
        source.report_position(size * done // rows)


def _check(schema: Any, path: Path, field: str, setting: str) -> None:
    """Check that the column named by a setting exists and holds text."""
    import pyarrow as pa

    if field not in schema.names:
        raise UserError(
            f"{path}: no column '{field}'; its columns are: {', '.join(schema.names)}; "
            f"name the one that holds the text with --{setting} NAME"
        )
    kind = schema.field(field).type
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text = pa.types.is_string(value) or pa.types.is_large_string(value)
    if not (is_text or pa.types.is_string_view(value)):
        raise UserError(
            f"{path}: column '{field}' is not text but {kind}; "
            f"name the one that holds the text with --{setting} NAME"
        )


def _batches(file: Any, source: TextFile, columns: list[str]) -> Iterator[Any]:
    """Yield the columns in pieces."""
    import pyarrow as pa

    try:
        yield from file.iter_batches(batch_size=_ROWS, columns=columns)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{source.path}: unreadable ({_line(error)}); fetch it again") from None


def _line(error: Exception) -> str:
    return str(error).split("\n")[0].rstrip(".")
