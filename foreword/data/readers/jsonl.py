"""JSON lines: .jsonl and .ndjson, an object with a text field on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from foreword.data.sources import Source
from foreword.errors import UserError
from foreword.types import Document


@dataclass(frozen=True)
class Jsonl:
    """JSON lines: each line is an object, and its text stands in the field `field`.

    Blank lines are passed over; a field that is null or without text is an empty document.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")

    def read(self, source: Source) -> Iterator[Document]:
        """The documents of a file.

        Raises:
            UserError: a line is not UTF-8 or not JSON, or has no text field.
        """
        for number, start, line in source.lines():
            if line.isspace():
                continue
            where = f"{source.path}:{number}"
            text = _field(source.decode(line, where, start), source.settings.field, where)
            if not text.isascii():
                # JSON can spell half a character (a lone surrogate), which UTF-8 cannot.
                text = source.decode(text.encode(errors="surrogatepass"), where)
            yield from source.document(text, number)


def _field(line: str, field: str, where: str) -> str:
    """The text field of one line."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({error}); mend or delete the line") from None
    if not isinstance(record, dict):
        raise UserError(
            f"{where}: not a JSON object but {type(record).__name__}; each line must be one"
        )
    if field not in record:
        raise UserError(
            f"{where}: no field '{field}'; its fields are: {', '.join(record) or 'none'}; "
            "name the one that holds the text with --field (--set read.field=NAME)"
        )
    text = record[field]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise UserError(
            f"{where}: field '{field}' is not text but {type(text).__name__}; "
            "name the one that holds the text with --field (--set read.field=NAME)"
        )
    return text
