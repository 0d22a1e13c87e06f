"""The pieces of a vocabulary: their readable form, and which of them begin a word.

Whether a piece begins a word depends on how its tokenizer marks words:

- wordpiece: a piece without `##`.
- byte-level (GPT-2): a piece that begins with whitespace or with a character that is no letter,
  digit or combining mark, since text is always cut before those. The first word of a text has no
  space before it and is missed; code that groups pieces into words begins one at the start of a
  text.
- metaspace (T5): a piece that begins with `▁`.
- words and characters: every piece; a character's id does not tell what precedes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models

from foreword.text import words
from foreword.types import Array

SPACE = "·"
_SHOWN = str.maketrans({" ": SPACE, "\n": "\\n", "\t": "\\t", "\r": "\\r"})


@dataclass(frozen=True)
class Pieces:
    """The engine's pieces by id, and how they mark words."""

    text: list[str]
    style: str  # "prefix", "bytes", "metaspace" or "whole"
    prefix: str = ""

    @classmethod
    def of(cls, engine: Engine, size: int) -> Pieces:
        """Return the `size` pieces of `engine`; ids without a piece are empty."""
        ids = engine.get_vocab(with_added_tokens=True)
        text = [""] * size
        for piece, i in ids.items():
            text[i] = piece
        model: Any = engine.model
        if isinstance(model, models.WordPiece):
            return cls(text, "prefix", model.continuing_subword_prefix)
        if isinstance(engine.decoder, decoders.ByteLevel):
            return cls(text, "bytes")
        has_metaspace = any(len(piece) > 1 and piece[0] == "▁" for piece in text)
        if has_metaspace and not isinstance(model, models.WordLevel):
            return cls(text, "metaspace")
        return cls(text, "whole")

    def starts_word(self) -> Array:
        """Return which pieces begin a word, (size,) bool."""
        rules: dict[str, Callable[[str], bool]] = {
            "prefix": lambda piece: not piece.startswith(self.prefix),
            "bytes": _starts_word_in_bytes,
            "metaspace": lambda piece: piece.startswith("▁"),
            "whole": lambda piece: True,
        }
        rule = rules[self.style]
        return np.fromiter(map(rule, self.text), dtype=bool, count=len(self.text))

    def spellings(self) -> tuple[bytes, ...]:
        """Return the text of each piece in UTF-8, including a leading space if it has one."""
        rules: dict[str, Callable[[str], bytes]] = {
            "prefix": lambda piece: piece.removeprefix(self.prefix).encode(),
            "bytes": lambda piece: raw if (raw := _raw(piece)) is not None else piece.encode(),
            "metaspace": lambda piece: piece.replace("▁", " ").encode(),
            "whole": str.encode,
        }
        return tuple(map(rules[self.style], self.text))

    def readable(self, i: int) -> str:
        """Return piece `i` in readable form: `·` is a space, `\\xe2` part of a character."""
        return self.shown(self.text[i])

    def shown(self, piece: str) -> str:
        """Return any piece of this style in readable form."""
        if self.style == "bytes" and (raw := _raw(piece)) is not None:
            piece = raw.decode(errors="backslashreplace")
        elif self.style == "metaspace":
            piece = piece.replace("▁", " ")
        return piece.translate(_SHOWN)


@cache
def _bytes_of_characters() -> dict[str, int]:
    """Return GPT-2's table: each byte by its printable character."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + n): byte for n, byte in enumerate(others)}


def _raw(piece: str) -> bytes | None:
    """Return the bytes of a byte-level piece; None for any other piece."""
    table = _bytes_of_characters()
    if not all(character in table for character in piece):
        return None
    return bytes(table[character] for character in piece)


def _starts_word_in_bytes(piece: str) -> bool:
    raw = _raw(piece)
    if not raw:
        return True
    # Continuation bytes begin no word; the first bytes alone do not identify a character.
    first = raw.decode(errors="replace")[0]
    return not (words.is_part(first) or first == "�")
