"""Web archives: .warc with pages of HTML, and Common Crawl's .wet with pages as text.

Records are found here, by their length and the line that must follow: warcio and fastwarc end at
the first broken record, or skip it without a word. fastwarc parses a record's HTTP answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, ClassVar

from foreword.data.readers._contract import Reader
from foreword.data.text_files import TextFile
from foreword.data.web_page import UnreadablePageError, decode, extract
from foreword.errors import UserError
from foreword.process.extras import require_packages
from foreword.types import Document

PACKAGES = ("fastwarc", "resiliparse")
BEGINNING = b"WARC/"  # of a record
LINE, BLOCK = 1 << 16, 1 << 20  # bytes read at once
LARGEST = 32 << 20  # bytes of a record, and of its page, that is read
HTML, PLAIN = ("text/html", "application/xhtml+xml"), "text/plain"


@dataclass(frozen=True)
class WARC(Reader):
    """Web archives: a document for each page, its main content as text.

    Pages are records of type response, resource and conversion. One that has no text to read is
    counted by reason: a broken record, another status than 200, another type than HTML (text that
    a crawler extracted may be plain), larger than 32 MB, of an unknown charset. Bytes that do not
    fit a page's charset are replaced by U+FFFD and counted, whatever `errors` says. Requires the
    extra `data`.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".warc", ".wet")
    is_divisible: ClassVar[bool] = False

    def read(self, source: TextFile) -> Iterator[Document]:
        """Yield the documents of a file.

        Raises:
            UserError: it is not a web archive, or is cut short.
        """
        require_packages(PACKAGES, "web archives require", "data")
        with source.open() as stream:
            for number, headers, block in _records(source, stream):
                if headers.get("warc-type") not in ("response", "resource", "conversion"):
                    continue  # about pages, not pages
                try:
                    text = _text(source, headers, block)
                except UnreadablePageError as error:
                    source.counts.leave(str(error))
                    continue
                url = headers.get("warc-target-uri", "").strip("<>")
                yield from source.document(text, f"{number} {url}".rstrip())


def _records(
    source: TextFile, stream: IO[bytes]
) -> Iterator[tuple[int, dict[str, str], bytes | None]]:
    """Yield each record: its number from 1, its headers, its block; None if that is too large.

    After a record whose length is wrong, reading goes on at the next beginning of a record.
    """
    line = _next_line(stream)
    if not line.startswith(BEGINNING):
        raise UserError(f"{source.path}: not a web archive: it does not begin with WARC/")
    number = 0
    while line:
        number += 1
        headers = _headers(stream)
        length = headers.get("content-length", "")
        is_whole = length.isdecimal() and len(length) < 16
        size = int(length) if is_whole else 0
        block = stream.read(size) if size <= LARGEST else None
        if len(block) < size if block is not None else not _skip(stream, size):
            raise UserError(f"{source.path}: ends within record {number:,}; fetch it again")
        line = _next_line(stream)
        is_whole = is_whole and (not line or line.startswith(BEGINNING))
        while line and not line.startswith(BEGINNING):
            line = stream.readline(LINE)
        source.report_position()
        if is_whole:
            yield number, headers, block
        else:
            source.counts.leave("broken")


def _next_line(stream: IO[bytes]) -> bytes:
    """Return the next line that is not blank; b"" at the end."""
    while (line := stream.readline(LINE)) and not line.strip():
        pass
    return line


def _headers(stream: IO[bytes]) -> dict[str, str]:
    """Return the headers of a record, by name in lower case."""
    headers = {}
    while (line := stream.readline(LINE)).strip():
        name, _, value = line.decode(errors="replace").partition(":")
        headers[name.strip().lower()] = value.strip()
    return headers


def _skip(stream: IO[bytes], size: int) -> bool:
    """Skip some bytes; return whether there are that many."""
    while size and (read := len(stream.read(min(size, BLOCK)))):
        size -= read
    return not size


def _text(source: TextFile, headers: dict[str, str], block: bytes | None) -> str:
    """Return the text of a page."""
    kind, charset = headers.get("content-type", ""), None
    body = _small(block)
    if kind.startswith("application/http"):
        response = _response(body)
        if response.http_headers.status_code != 200:
            raise UnreadablePageError(f"status {response.http_headers.status_code}")
        kind, charset = response.http_content_type or "", response.http_charset
        try:
            body = _small(response.reader.read(LARGEST + 1))
        except OSError:
            raise UnreadablePageError("broken") from None
    kind = headers.get("warc-identified-payload-type") or kind.partition(";")[0]
    kind = kind.strip().lower()
    is_plain = kind == PLAIN and headers["warc-type"] == "conversion"
    if kind not in HTML and not is_plain:
        raise UnreadablePageError(f"of type {kind}" if kind else "of no type")
    text, replaced = decode(body, charset)
    source.counts.replaced_bytes += replaced
    return text if is_plain else extract(text)


def _small(data: bytes | None) -> bytes:
    """Return what is not too large to be read."""
    if data is None or len(data) > LARGEST:
        raise UnreadablePageError(f"larger than {LARGEST >> 20} MB")
    return data


def _response(block: bytes) -> Any:
    """Return a record whose HTTP headers are parsed and whose body is decompressed when read."""
    from fastwarc.warc import WarcRecord

    head = b"WARC/1.0\r\nWARC-Type: response\r\nContent-Type: application/http\r\n"
    record = WarcRecord.from_bytes(
        b"%sContent-Length: %d\r\n\r\n%s\r\n\r\n" % (head, len(block), block)
    )
    try:
        record.parse_http(auto_decode="all")
    except OSError:
        raise UnreadablePageError("broken") from None
    if record.http_headers is None or record.http_headers.status_code is None:
        raise UnreadablePageError("broken")
    return record
