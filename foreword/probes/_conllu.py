"""Tagged sentences from files in CoNLL-U, the format of Universal Dependencies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from foreword.errors import UserError
from foreword.tuning.table_files import text_lines

Column = Literal["upos", "xpos"]

COLUMNS = 10
ID, FORM, MISC = 0, 1, 9
TAGS: dict[Column, int] = {"upos": 3, "xpos": 4}
NONE = "_"  # of a word without a tag
GLUED = "SpaceAfter=No"


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence and the tags of its words.

    Attributes:
        text: the words with the spaces between them.
        spans: first character of each word and the one after its last.
        tags: the tag of each; None if it has none.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    tags: tuple[str | None, ...]

    @property
    def words(self) -> list[str]:
        """The words."""
        return [self.text[start:stop] for start, stop in self.spans]


class _Line(NamedTuple):
    """A line of a word or of a range of words that are written as one (`2-3 don't`)."""

    first: int
    last: int
    form: str
    tag: str
    is_glued: bool


def read_conllu(path: Path, column: Column) -> list[TaggedSentence]:
    """Return the sentences of a file, perhaps a compressed one.

    The words are the syntactic words, numbered 1, 2, ...; a range such as `2-3` says how its words
    are written together, and empty nodes such as `2.1`, which are not in the text, are skipped.

    Raises:
        UserError: the file cannot be read or is not CoNLL-U; the message names the line.
    """
    sentences = [_sentence(lines) for lines in _blocks(path, TAGS[column])]
    if not sentences:
        raise UserError(f"{path}: no sentence in it")
    if not any(tag for sentence in sentences for tag in sentence.tags):
        raise UserError(f"{path}: no word has a tag in column {TAGS[column] + 1} ({column})")
    return sentences


def _blocks(path: Path, tag: int) -> Iterator[list[_Line]]:
    """Yield the lines of each sentence, checked."""
    block: list[_Line] = []
    words = 0  # of the sentence so far
    for number, line in enumerate(chain(text_lines(path), [""]), 1):
        line = line.rstrip("\r\n")
        if not line.strip():
            if any(one.last > words for one in block):
                raise UserError(f"{path}:{number}: the sentence ends within a range of words")
            if words:
                yield block
            block, words = [], 0
        elif not line.startswith("#"):
            read = _line(line.split("\t"), words, tag, f"{path}:{number}")
            if read is not None:
                block.append(read)
                words += read.first == read.last


def _line(cells: Sequence[str], words: int, tag: int, where: str) -> _Line | None:
    """Return the line of a word or a range; None for an empty node.

    Args:
        cells: its columns.
        words: number of words before it in its sentence.
        tag: the column of tags.
        where: file and line.

    Raises:
        UserError: it is not a line of CoNLL-U.
    """
    if len(cells) != COLUMNS:
        raise UserError(
            f"{where}: expected {COLUMNS} columns separated by tabs, got {len(cells)}; is it "
            "CoNLL-U?"
        )
    name = re.fullmatch(r"(\d{1,6})(?:(-)(\d{1,6})|(\.)\d{1,6})?", cells[ID])
    if name is None:
        raise UserError(f"{where}: expected the number of a word, got {cells[ID]!r}")
    if name[4]:
        return None
    first, last = int(name[1]), int(name[3] or name[1])
    is_range_of_none = name[2] is not None and last <= first
    if first != words + 1 or is_range_of_none:
        raise UserError(f"{where}: expected word {words + 1}, got {cells[ID]}")
    if not cells[FORM].strip():
        raise UserError(f"{where}: word {cells[ID]} has no form")
    is_glued = GLUED in cells[MISC].split("|")
    return _Line(first, last, cells[FORM].strip(), cells[tag], is_glued)


def _sentence(lines: Sequence[_Line]) -> TaggedSentence:
    """Return a sentence, its words spelled as they are written."""
    written_as = {line.first: line for line in lines if line.last > line.first}
    words = [line for line in lines if line.last == line.first]
    # Which words have no space after them: of a range, all but the last if they spell it ("do" and
    # "n't", not "de" and "le" for "du"), and the last if the range has none.
    is_glued = [word.is_glued for word in words]
    for one in written_as.values():
        members = words[one.first - 1 : one.last]
        if "".join(word.form for word in members) == one.form:
            is_glued[one.first - 1 : one.first - 2 + len(members)] = [True] * (len(members) - 1)
        is_glued[one.first - 2 + len(members)] = one.is_glued
    text = ""
    spans = []
    for word, glued in zip(words, is_glued, strict=True):
        spans.append((len(text), len(text) + len(word.form)))
        text += word.form + ("" if glued else " ")
    tags = tuple(None if word.tag == NONE else word.tag for word in words)
    return TaggedSentence(text.rstrip(" "), tuple(spans), tags)
