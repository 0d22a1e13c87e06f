"""JSON lines: .jsonl and .ndjson, an object with a text field on each line, or with two."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from foreword.data.readers._contract import Reader
from foreword.data.text_files import TextFile
from foreword.errors import UserError
from foreword.types import Document


@dataclass(frozen=True)
class JSONL(Reader):
    """JSON lines: an object on each line, with the text in the field `field`.

    Blank lines are skipped; a field that is null or blank is an empty document. With `target`, the
    text and the value of that field are a pair.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")
    has_sides: ClassVar[bool] = True

    def read(self, source: TextFile) -> Iterator[Document]:
        """Yield the documents of a file.

        Raises:
            UserError: a line is not UTF-8 or not JSON, or has no text field.
        """
        for number, start, line in source.lines():
            if line.isspace():
                continue
            where = f"{source.path}:{number}"
            record = _record(source.decode(line, where, start), where)
            text = _text(source, record, "field", where)
            if not source.settings.target:
                yield from source.document(text, number)
            else:
                yield from source.pair(text, _text(source, record, "target", where), number)


def _record(line: str, where: str) -> dict[str, Any]:
    """Return the object on one line."""
    try:
        record = json.loads(line.rstrip("\r\n"))
    except (ValueError, RecursionError) as error:
        reason = _reason(error) if isinstance(error, json.JSONDecodeError) else str(error)
        raise UserError(f"{where}: not JSON ({reason}); fix or delete the line") from None
    if not isinstance(record, dict):
        raise UserError(
            f"{where}: not a JSON object but {type(record).__name__}; each line must be one"
        )
    return record


def _reason(error: json.JSONDecodeError) -> str:
    """Return the error and its character in the line, without Python's line count."""
    what = error.msg.removesuffix(" at").removesuffix(" starting")
    return f"character {error.pos + 1:,}: {what[:1].lower()}{what[1:]}"


def _text(source: TextFile, record: dict[str, Any], setting: str, where: str) -> str:
    """Return the text of the field named by a setting."""
    field = getattr(source.settings, setting)
    if field not in record:
        raise UserError(
            f"{where}: no field '{field}'; its fields are: {', '.join(record) or 'none'}; "
            f"name the one that holds the text with --{setting} NAME"
        )
    text = record[field]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise UserError(
            f"{where}: field '{field}' is not text but {type(text).__name__}; "
            f"name the one that holds the text with --{setting} NAME"
        )
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON can spell half a character, which UTF-8 cannot
        if source.settings.errors == "strict":
            raise UserError(
                f"{where}: field '{field}', character {error.start + 1:,}: "
                f"\\u{ord(text[error.start]):04x} is half a character (a lone surrogate); fix the "
                "line, or use --errors replace to replace and count them"
            ) from None
        return source.decode(text.encode(errors="surrogatepass"), where)
    return text
