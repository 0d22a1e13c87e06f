"""Parquet: a column holds the texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from foreword.data.sources import Source
from foreword.errors import UserError
from foreword.types import Document

_ROWS = 1024  # decoded at once


@dataclass(frozen=True)
class Parquet:
    """Parquet: the text stands in the column `field`; only that column is read, a piece at a time.

    A null or a text without text is an empty document.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)

    def read(self, source: Source) -> Iterator[Document]:
        """The documents of a file.

        Raises:
            UserError: it is not Parquet or cut short, has no such column, or is not UTF-8.
        """
        import pyarrow as pa
        from pyarrow import parquet

        path = source.path
        if path.suffix.lower() != ".parquet":
            raise UserError(f"{path}: Parquet compresses within; decompress the file first")
        try:
            file = parquet.ParquetFile(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise UserError(
                f"{path}: not a Parquet file, or one cut short ({_line(error)}); fetch it again"
            ) from None
        with file:
            _check(file.schema_arrow, source)
            size, done, rows = path.stat().st_size, 0, max(1, file.metadata.num_rows)
            for batch in _batches(file, source):
                column = batch.column(0).cast(pa.string(), safe=False).cast(pa.binary())
                for data in column.to_pylist():
                    done += 1
                    text = source.decode(data or b"", f"{path}:{done}")
                    yield from source.document(text, done)
                source.at(size * done // rows)


def _check(schema: Any, source: Source) -> None:
    """Makes sure that the text column is there and holds text."""
    import pyarrow as pa

    path, field = source.path, source.settings.field
    if field not in schema.names:
        raise UserError(
            f"{path}: no column '{field}'; its columns are: {', '.join(schema.names)}; "
            "name the one that holds the text with --field (--set read.field=NAME)"
        )
    kind = schema.field(field).type
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text = pa.types.is_string(value) or pa.types.is_large_string(value)
    if not (is_text or pa.types.is_string_view(value)):
        raise UserError(
            f"{path}: column '{field}' is not text but {kind}; "
            "name the one that holds the text with --field (--set read.field=NAME)"
        )


def _batches(file: Any, source: Source) -> Iterator[Any]:
    """Pieces of the text column."""
    import pyarrow as pa

    try:
        yield from file.iter_batches(batch_size=_ROWS, columns=[source.settings.field])
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{source.path}: unreadable ({_line(error)}); fetch it again") from None


def _line(error: Exception) -> str:
    return str(error).split("\n")[0].rstrip(".")
