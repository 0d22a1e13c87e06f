"""Sentence splitting by one regular expression.

Two guarantees, both tested: the pieces' concatenation is the text, and every kind of tokenizer
gives the same ids for the pieces in turn as for the whole text. The second holds because a piece
begins with all the whitespace before it, and every kind of tokenizer cuts there.

*Limits:* a text whose sentences are not separated by whitespace (Chinese, Japanese) is cut at empty
lines only. A single newline ends no sentence, since in many texts it is only wrapping.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

_BEHIND = 16  # characters before a cut that decide on it: more than the longest abbreviation

# Lower case of the Latin, Greek, Cyrillic and Armenian scripts; `re` has no class for it.
_LOWER = "".join(c for c in map(chr, range(0x590)) if c.islower())

ENDS = ".!?…。！？।॥۔؟։።"  # of sentences

_END = re.compile(
    rf"""
    [{ENDS}\r\n]                        # a single set first: the engine then skips to candidates
    (?:
      (?<![{ENDS}]{{2}})                # the first of its run, or long runs would cost their square
      (?<![\r\n])
      [{ENDS}]*+ ["'”’»)\]]*+          # "Really?!" (Yes.)
      (?= [ \t\r\n]\s* [^\s{_LOWER}])  # a space, and no small letter to go on with
      (?<! \b[A-HJ-Z]\.)               # J. R. R. Tolkien, the U.S. Navy; but: World War I. Then
      (?<! \b(?:Mr|Ms|Dr|St|Mt|Lt|vs|cf|ca)\.)
      (?<! \b(?:Mrs|Gen|Col|Sgt|Rev|Hon|Gov|Sen|Rep|e\.g|i\.e)\.)
      (?<! \b(?:Prof|Capt)\.)
      (?! (?: (?<=\b(?:No|pp)\.) | (?<=\b(?:Fig|Vol|Jan|Feb|Mar|Apr|Aug|Sep|Oct|Nov|Dec)\.) )
          \s\d )                       # No. 5, Jan. 31
    |
      (?<= \S[\r\n]) \n? [ \t]*+ \r?\n (?= \s*\S)  # an empty line
    )
    """,
    re.VERBOSE,
)


def split(text: str) -> list[str]:
    """Split `text` into sentences, each with the whitespace before it; joined they are the text."""
    return list(iterate([text]))


def iterate(blocks: Iterable[str]) -> Iterator[str]:
    """Yield the sentences of a text that comes in blocks: those of the whole text, one by one."""
    text, start, searched = "", 0, 0
    for block in itertools.chain(blocks, [""]):
        if start > _BEHIND:
            text, searched, start = text[start - _BEHIND :], searched - start + _BEHIND, _BEHIND
        text += block
        # A letter or digit decides on every cut before it; the end of the text on the others.
        end = _after_last_letter(text, len(text) - len(block)) if block else len(text)
        for match in _END.finditer(text, searched, max(searched, end)):
            cut = match.start() if match[0].isspace() else match.end()
            if cut > start:  # a full stop and an empty line after it are one cut
                yield text[start:cut]
                start = cut
        searched = max(searched, end)
    if start < len(text):
        yield text[start:]


def _after_last_letter(text: str, start: int) -> int:
    """Return the index after the last letter or digit in `text[start:]`; 0 if there is none."""
    return next((at + 1 for at in range(len(text) - 1, start - 1, -1) if text[at].isalnum()), 0)
