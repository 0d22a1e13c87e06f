"""Sentences from files in CoNLL-U, the format of Universal Dependencies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from foreword.errors import UserError
from foreword.tables.files import text_lines

WordProperty = Literal["upos", "xpos", "word", "position", "depth"]

NAMES = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
ID, FORM, UPOS, XPOS, HEAD, MISC = 0, 1, 3, 4, 6, 9
COLUMNS: dict[WordProperty, int] = {  # that a property is read from
    "upos": UPOS,
    "xpos": XPOS,
    "word": FORM,
    "position": ID,
    "depth": HEAD,
}
NONE = "_"  # of a word without a tag
GLUED = "SpaceAfter=No"


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence and properties of its words.

    Attributes:
        text: the words with the spaces between them.
        spans: first character of each word and the one after its last.
        tags: by property, that of each word; None if it has none. `word` is in lower case,
            `position` counts from 1, `depth` is the number of arcs to the root.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    tags: Mapping[WordProperty, tuple[str | None, ...]]

    @property
    def words(self) -> list[str]:
        """The words."""
        return [self.text[start:stop] for start, stop in self.spans]


class WordLines(NamedTuple):
    """The lines of a sentence's words.

    Attributes:
        line: the number of its first line in the file.
        cells: the columns of each word.
        lacks_space_after: whether the next word follows without a space, for each word.
        wrong: why the sentence cannot be read, with file and line; "" if it can.
    """

    line: int
    cells: list[list[str]]
    lacks_space_after: list[bool]
    wrong: str = ""


class _Line(NamedTuple):
    """A line of a word or of a range of words that are written as one (`2-3 don't`)."""

    first: int
    last: int
    cells: list[str]

    @property
    def form(self) -> str:
        return self.cells[FORM]

    @property
    def lacks_space_after(self) -> bool:
        return GLUED in self.cells[MISC].split("|")


def read_conllu(path: Path, *properties: WordProperty) -> list[TaggedSentence]:
    """Return the sentences of a file, perhaps a compressed one, with properties of the words.

    Raises:
        UserError: the file cannot be read or is not CoNLL-U; the message names the line.
    """
    blocks = list(word_lines(path))
    if wrong := next((block.wrong for block in blocks if block.wrong), ""):
        raise UserError(wrong)
    sentences = [_tagged(lines, properties, path) for lines in blocks]
    if not sentences:
        raise UserError(f"{path}: no sentence in it")
    for name in properties:
        if not any(tag for sentence in sentences for tag in sentence.tags[name]):
            column = COLUMNS[name]
            raise UserError(f"{path}: no word has a tag in column {column + 1} ({NAMES[column]})")
    return sentences


def word_lines(path: Path) -> Iterator[WordLines]:
    """Yield the lines of each sentence's words.

    The words are the syntactic words, numbered 1, 2, ...; a range such as `2-3` says how its words
    are written together, and empty nodes such as `2.1`, which are not in the text, are skipped.

    Raises:
        UserError: the file cannot be read.
    """
    block: list[_Line] = []
    words = start = 0  # words of the sentence so far, and its first line
    wrong = ""
    for number, line in enumerate(chain(text_lines(path), [""]), 1):
        line = line.rstrip("\r\n")
        if not line.strip():
            if not wrong and any(entry.last > words for entry in block):
                wrong = f"{path}:{number}: the sentence ends within a range of words"
            if wrong:
                yield WordLines(start, [], [], wrong)
            elif words:
                yield _words(block, start)
            block, words, wrong = [], 0, ""
        elif not wrong and not line.startswith("#"):
            start = start if block else number
            try:
                read = _line(line.split("\t"), words, f"{path}:{number}")
            except UserError as error:
                wrong = str(error)
                continue
            if read is not None:
                block.append(read)
                words += read.first == read.last


def _line(cells: list[str], words: int, where: str) -> _Line | None:
    """Return the line of a word or a range; None for an empty node."""
    if len(cells) != len(NAMES):
        raise UserError(
            f"{where}: expected {len(NAMES)} columns separated by tabs, got {len(cells)}; is it "
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
    cells[FORM] = cells[FORM].strip()
    return _Line(first, last, cells)


def _words(lines: Sequence[_Line], start: int) -> WordLines:
    """Return the words of a sentence that begins at line `start`."""
    multiword_tokens = {line.first: line for line in lines if line.last > line.first}
    words = [line for line in lines if line.last == line.first]
    # Which words have no space after them: in a multiword token, all but the last if they spell it
    # ("do" and "n't", not "de" and "le" for "du"), and the last if the token has none.
    lacks_space_after = [word.lacks_space_after for word in words]
    for token in multiword_tokens.values():
        members = words[token.first - 1 : token.last]
        if "".join(word.form for word in members) == token.form:
            lacks_space_after[token.first - 1 : token.first - 2 + len(members)] = [True] * (
                len(members) - 1
            )
        lacks_space_after[token.first - 2 + len(members)] = token.lacks_space_after
    return WordLines(start, [word.cells for word in words], lacks_space_after)


def _tagged(lines: WordLines, properties: Sequence[WordProperty], path: Path) -> TaggedSentence:
    """Return a sentence with properties of its words."""
    text = ""
    spans = []
    for cells, glued in zip(lines.cells, lines.lacks_space_after, strict=True):
        spans.append((len(text), len(text) + len(cells[FORM])))
        text += cells[FORM] + ("" if glued else " ")
    tags: dict[WordProperty, tuple[str | None, ...]] = {}
    for name in properties:
        column = [cells[COLUMNS[name]] for cells in lines.cells]
        if name == "depth":
            depths = _depths(column, f"{path}:{lines.line}")
            tags[name] = tuple(None if depth is None else str(depth) for depth in depths)
        elif name == "word":
            tags[name] = tuple(word.lower() for word in column)
        else:
            tags[name] = tuple(None if tag == NONE else tag for tag in column)
    return TaggedSentence(text.rstrip(" "), tuple(spans), tags)


def _depths(heads: Sequence[str], where: str) -> list[int | None]:
    """Return the number of arcs from each word to the root of its sentence; None without a path."""
    if any(head != NONE and not re.fullmatch(r"\d{1,6}", head) for head in heads) or any(
        int(head) > len(heads) for head in heads if head != NONE
    ):
        raise UserError(f"{where}: expected heads from 0 to {len(heads)} in column {HEAD + 1}")
    depths: list[int | None] = []
    for n in range(len(heads)):
        word, depth = n, 0
        while (head := heads[word]) not in (NONE, "0"):
            word, depth = int(head) - 1, depth + 1
            if depth > len(heads):
                raise UserError(f"{where}: the heads of the sentence go round in a circle")
        depths.append(depth if head == "0" else None)
    return depths
