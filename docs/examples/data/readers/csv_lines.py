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
    """CSV with a header: one document a line, from the column that `--field` names."""

    suffixes: ClassVar[tuple[str, ...]] = (".csv",)

    def read(self, source: TextFile) -> Iterator[Document]:
        """Yield the documents of a file.

        Raises:
            UserError: the file is not UTF-8, or has no such column.
        """
        header: list[str] | None = None
        for number, start, line in source.lines():
            where = f"{source.path}:{number}"
            cells = next(csv.reader([source.decode(line, where, start)]), [])
            if header is None:
                header = cells
                if source.settings.field not in header:
                    raise UserError(f"{where}: no column '{source.settings.field}'")
                continue
            record = dict(zip(header, cells, strict=False))
            yield from source.document(record.get(source.settings.field, ""), number)
