"""Plain text: .txt, .md, and WikiText's .tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from foreword.data.readers._contract import Reader
from foreword.data.text_files import TextFile
from foreword.types import Document


@dataclass(frozen=True)
class Text(Reader):
    """Plain text, where a document is the whole file, a paragraph, or a line.

    A file that is one document is read into memory whole; paragraphs and lines are streamed. Blank
    lines between paragraphs are not documents; with `documents = "line"` they are empty ones,
    skipped and counted unless `blank_lines` is true.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".txt", ".md", ".tokens")

    def read(self, source: TextFile) -> Iterator[Document]:
        """Yield the documents of a file.

        Raises:
            UserError: it is not UTF-8.
        """
        name = str(source.path)
        match source.settings.documents:
            case "file":
                yield from source.document(_whole(source))
            case "line":
                for number, start, line in source.lines():
                    yield from source.document(source.decode(line, name, start), number)
            case "paragraph":
                lines: list[str] = []
                first = 0
                for number, start, line in source.lines():
                    text = source.decode(line, name, start)
                    if text.isspace():
                        if lines:
                            yield from source.document("".join(lines), first)
                            lines = []
                        continue
                    first = first if lines else number
                    lines.append(text)
                if lines:
                    yield from source.document("".join(lines), first)


def _whole(source: TextFile) -> str:
    """Return the text of a file; line ends are normalised before decoding."""
    with source.open() as stream:
        data = stream.read()
    source.report_position(source.path.stat().st_size)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    data = data.strip(b"\n")
    try:
        return data.decode()
    except UnicodeDecodeError:
        with source.open() as stream:  # again, for the position in it
            return source.decode(stream.read(), str(source.path))
