"""Long texts as UTF-8, a block at a time, so that not all of one is there twice."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from foreword.errors import UserError

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


def encode(text: str, where: str) -> bytes:
    """Return a text as UTF-8.

    Raises:
        UserError: it holds half a character, a lone surrogate, as JSON can spell it.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise half_a_character(f"{where}, character {error.start}") from None


def half_a_character(where: str) -> UserError:
    """Return the error for a lone surrogate, which UTF-8 cannot hold."""
    return UserError(f"{where}: half a character (a lone surrogate); save the text again as UTF-8")
