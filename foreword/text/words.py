"""Words of a text in any script.

A word is letters and digits with their combining marks; where a script is written without spaces,
each letter with its marks is one. Of English the words are those of `[a-z0-9]+` in lower case.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import groupby

UNSPACED_RULE = "in scripts without spaces between words, each letter"
RULE = f"letters and digits with their marks, in lower case; {UNSPACED_RULE}"


def _ranges(characters: Iterable[str]) -> str:
    """Return characters in ascending order as ranges of a regular expression's set."""
    numbered = enumerate(map(ord, characters))
    runs = ([at for _, at in run] for _, run in groupby(numbered, lambda pair: pair[1] - pair[0]))
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs)


# Combining marks, which `\w` lacks: accents, vowel signs; and joiners inside words.
_WITH_MARKS = map(chr, (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0)))
MARKS = _ranges(c for c in _WITH_MARKS if unicodedata.category(c)[0] == "M")
JOINERS = "\u200c\u200d"
# Scripts written without spaces: Thai and Lao, Myanmar, Khmer, Tai, kana, bopomofo, Han.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u3005-\u3007\u3040-\u312f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua9e0-\ua9ff\uaa60-\uaadf\uf900-\ufaff"
    "\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U000323af"
)
UNSPACED_LETTER = rf"(?=[^\W_])[{UNSPACED}][{MARKS}]*+"
WORD = rf"{UNSPACED_LETTER}|(?:[^\W_{UNSPACED}][{MARKS}{JOINERS}]*+)++"
_WORD, _UNSPACED = re.compile(WORD), re.compile(UNSPACED_LETTER)


def split(text: str) -> list[str]:
    """Return the words of a text, composed (NFC) and in lower case."""
    return _WORD.findall(unicodedata.normalize("NFC", text.lower()))


def is_part(character: str) -> bool:
    """Return whether a character may be part of a word: a letter, a digit or a mark."""
    return character.isalnum() or unicodedata.category(character)[0] == "M"


def is_joined(character: str) -> bool:
    """Return whether a character belongs to the letter before it: a mark, a vowel of a Jamo."""
    category = unicodedata.category(character)
    return category[0] == "M" or character in JOINERS or "\u1160" <= character <= "\u11ff"


def is_unspaced(text: str) -> bool:
    """Return whether a text has letters of a script without spaces between words."""
    return _UNSPACED.search(text) is not None


def spaced(text: str) -> str:
    """Return a text with spaces around each letter of a script without spaces between words."""
    return _UNSPACED.sub(r" \g<0> ", text)
