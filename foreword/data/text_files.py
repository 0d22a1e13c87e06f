"""A text file, compressed or not, and the counts of reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, cast

from foreword.disk import atomic
from foreword.disk.compressed import decompressed
from foreword.errors import UserError
from foreword.text import utf8
from foreword.types import Document

CLEANED = ("cleaned", 1)  # kind and version of the manifest that `foreword clean` writes

_BOM = b"\xef\xbb\xbf"
_REPLACEMENT = b"\xef\xbf\xbd"  # U+FFFD, which stands for a byte that is not UTF-8
_REASONS = 50  # counted each


@dataclass(frozen=True)
class ReadSettings:
    """How files become documents.

    Attributes:
        field: the field of JSON lines and the column of Parquet that holds the text.
        target: in parallel text, the other side of each pair: another field or column; with plain
            text, `NAME.en` and `NAME.de` are read side by side, line by line, if `field` is `en`
            and this is `de`. "" for text that is not parallel.
        documents: the unit of a document in a plain text file: the file, a paragraph (separated by
            blank lines), or a line.
        blank_lines: whether a blank line is a document of no words, with `documents` "line".
            WikiText's published figures count its end.
        errors: how to treat bytes that are not UTF-8: `strict` stops with their position, `replace`
            substitutes U+FFFD and counts them.
    """

    field: str = "text"
    documents: Literal["file", "paragraph", "line"] = "file"
    errors: Literal["strict", "replace"] = "strict"
    target: str = ""
    blank_lines: bool = False

    def __post_init__(self) -> None:
        if self.documents not in ("file", "paragraph", "line"):
            raise ValueError(f"documents: file, paragraph or line, got {self.documents!r}")
        if self.errors not in ("strict", "replace"):
            raise ValueError(f"errors: strict or replace, got {self.errors!r}")
        if self.target and self.target == self.field:
            raise ValueError(
                f"target: must differ from field, {self.field!r}; name both sides, "
                "such as field 'en' and target 'de'"
            )
        if self.blank_lines and self.documents != "line":
            raise ValueError(f"blank_lines: requires documents=line, got {self.documents!r}")


@dataclass
class ReadCounts:
    """The counts of what was read and what was skipped.

    Attributes:
        files: files read.
        empty_files: files of no bytes.
        skipped: files in folders that no reader reads, by kind (`".pdf"` -> 3).
        left: documents and pages of web archives that were not kept, by reason (`"of type
            image/png"` -> 3).
        documents: documents with text.
        empty_documents: documents without text, skipped.
        empty_sides: pairs with one side without text, skipped.
        bytes: bytes of the documents' text as UTF-8.
        replaced_bytes: bytes that were not UTF-8, each run replaced by U+FFFD.
        bytes_read: bytes of the files as stored (compressed); for progress.
    """

    files: int = 0
    empty_files: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    documents: int = 0
    empty_documents: int = 0
    empty_sides: int = 0
    bytes: int = 0
    replaced_bytes: int = 0
    bytes_read: int = 0

    def total_bytes(self, stored: int) -> float:
        """Return the bytes of text in files of `stored` bytes, by what was read of them so far."""
        if not self.bytes_read:
            return float(max(self.bytes, stored))
        return max(self.bytes, self.bytes * stored / self.bytes_read)

    def skip(self, what: str) -> None:
        """Count a file that is not read."""
        self.skipped[what] = self.skipped.get(what, 0) + 1

    def leave(self, why: str) -> None:
        """Count a page that is not read; the rarest reasons of many become one."""
        if why not in self.left and len(self.left) >= _REASONS:
            why = "other"
        self.left[why] = self.left.get(why, 0) + 1


def sum_counts(readings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of the counts of several readings, each as a table."""
    totals: dict[str, Any] = {}
    for counts in readings:
        for name, value in counts.items():
            if isinstance(value, Mapping):
                totals[name] = dict(Counter(totals.get(name, {})) + Counter(value))
            else:
                totals[name] = totals.get(name, 0) + value
    return totals


class TextFile:
    """A file being read: its decompressed bytes, its text, its documents.

    Args:
        path: the file.
        settings: how to read it.
        counts: updated while reading.
    """

    def __init__(self, path: Path, settings: ReadSettings, counts: ReadCounts) -> None:
        self.path = path
        self.settings = settings
        self.counts = counts
        self._before = counts.bytes_read
        self._start = 0  # of the text, after a byte order mark

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the file as a stream of decompressed bytes, without a byte order mark."""
        atomic.require_no_device(self.path, atomic.FROM_A_FILE)
        with self.path.open("rb") as raw:
            stream: Any = decompressed(raw, self.path)
            if stream.peek(3)[:3] == _BOM:
                self._start = len(stream.read(3))
            self._raw = raw
            yield cast(IO[bytes], stream)

    def report_position(self, position: int | None = None) -> None:
        """Record how far into the file reading is, in bytes; by default where the file stands."""
        self.counts.bytes_read = self._before + (self._raw.tell() if position is None else position)

    def lines(self, *, are_parallel: bool = False) -> Iterator[tuple[int, int, bytes]]:
        """Yield each line: its number from 1, the offset of its first byte, its bytes.

        Args:
            are_parallel: whether lines end at line feeds alone, as those of parallel text do;
                else also at carriage returns.
        """
        with self.open() as stream:
            start = 0
            lines = stream if are_parallel else (p for s in stream for p in s.splitlines(True))
            for number, line in enumerate(lines, 1):
                yield number, start, line
                start += len(line)
                if not number % 64:
                    self.report_position()

    def decode(self, data: bytes, where: str, start: int = 0) -> str:
        """Return the text of `data`.

        Args:
            data: bytes of UTF-8.
            where: their origin for messages: file, and line or row.
            start: the offset of the first one in the text, from 0.

        Raises:
            UserError: they are not UTF-8, and `errors` is `strict`.
        """
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            if self.settings.errors == "strict":
                is_utf16 = start == 0 and data[:2] in (b"\xff\xfe", b"\xfe\xff")
                offset = self._start + start + error.start
                raise UserError(
                    f"{where}: byte {offset:,} (0x{data[error.start]:02x}) is not UTF-8"
                    f"{', it looks like UTF-16' if is_utf16 else ''}; convert the file, or use "
                    "--errors replace to replace and count them"
                ) from None
        text = data.decode(errors="replace")
        added = len(text.encode()) - len(_REPLACEMENT) * (
            text.count("\ufffd") - data.count(_REPLACEMENT)
        )
        self.counts.replaced_bytes += len(data) - added
        return text

    def document(self, text: str, number: int | str | None = None) -> Iterator[Document]:
        """Yield the document of `text`; a blank one only with `blank_lines`, else it is counted.

        Line ends become `\\n`, and those around the text are removed.
        """
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        text = text.strip("\n")
        if not text or text.isspace():
            if not self.settings.blank_lines:
                self.counts.empty_documents += 1
                return
            text = ""
        self.counts.documents += 1
        self.counts.bytes += utf8.size(text)
        source = str(self.path) if number is None else f"{self.path}:{number}"
        documents = [Document(text, source)]
        del text  # perhaps a whole book, which its reader may be done with before the next
        yield documents.pop()

    def pair(self, text: str, target: str, number: int) -> Iterator[Document]:
        """Yield a pair as a document of two lines; if one side has no text, count it instead.

        Whitespace within a side becomes one space.
        """
        sides = [" ".join(side.split()) for side in (text, target)]
        if any(sides) and not all(sides):
            self.counts.empty_sides += 1
            return
        yield from self.document("\n".join(sides), number)
