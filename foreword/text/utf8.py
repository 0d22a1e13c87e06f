"""Long texts as UTF-8, a block at a time, so that not all of one is there twice."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

_BLOCK = 1 << 22


def decode(data: bytes) -> Iterator[str]:
    """Yield the text of UTF-8 in blocks."""
    if len(data) <= _BLOCK:
        yield data.decode()
        return
    yield from codecs.iterdecode(
        (data[at : at + _BLOCK] for at in range(0, len(data), _BLOCK)), "utf-8"
    )


def size(text: str) -> int:
    """Return the bytes of a text as UTF-8."""
    if text.isascii():
        return len(text)
    return sum(len(text[at : at + _BLOCK].encode()) for at in range(0, len(text), _BLOCK))
