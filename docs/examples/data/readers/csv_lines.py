"""CSV files, as an example of a reader in a plug-in."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from foreword.data.readers._contract import Reader
from foreword.data.text_files import TextFile
from foreword.errors import UserError
from foreword.types import Document


@dataclass(frozen=True)
class CsvLines(Reader):
    """CSV with a header: one document a record, from the column that `--field` names.

    A quoted cell may hold line ends. Documents are numbered by the last line of their record.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".csv",)

    def read(self, source: TextFile) -> Iterator[Document]:
        """Yield the documents of a file.

        Raises:
            UserError: the file is not UTF-8 or not CSV, or has no such column.
        """
        field = source.settings.field
        lines = (
            source.decode(line, f"{source.path}:{number}", start)
            for number, start, line in source.lines()
        )
        records = csv.reader(lines)
        try:
            header = next(records, [])
            if field not in header:
                raise UserError(f"{source.path}:1: no column '{field}'")
            for cells in records:
                record = dict(zip(header, cells, strict=False))
                yield from source.document(record.get(field, ""), records.line_num)
        except csv.Error as error:
            raise UserError(f"{source.path}:{records.line_num}: {error}") from error
