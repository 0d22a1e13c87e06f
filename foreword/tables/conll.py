"""Sentences of words in columns: CoNLL-U, and the CoNLL columns of shared tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from foreword.errors import UserError
from foreword.tables.columns import Columns
from foreword.tables.conllu import NAMES, NONE, word_lines
from foreword.tables.files import text_lines

SPACE_AFTER = "space_after"  # the column that says whether a space follows each word
DOCUMENT = "-DOCSTART-"  # the word of a line that begins a document, which is no sentence


class SentenceRow(NamedTuple):
    """A sentence: the number of its first line, and a list with an item for each word by column."""

    line: int
    columns: dict[str, Any]


@dataclass(frozen=True)
class SentenceFile:
    """A file of sentences.

    Attributes:
        names: names of the columns.
        usual: its columns of words and labels.
        sentences: returns an iterator over its sentences.
    """

    names: tuple[str, ...]
    usual: Columns
    sentences: Callable[[], Iterator[SentenceRow]]


def conllu_sentences(path: Path) -> SentenceFile:
    """Return the sentences of a CoNLL-U file; `_`, where there is no value, is None.

    Raises:
        UserError: when they are read: it is not CoNLL-U; the line is named.
    """

    def sentences() -> Iterator[SentenceRow]:
        for block in word_lines(path):
            columns: dict[str, Any] = {}
            for name, cells in zip(NAMES, zip(*block.cells, strict=True), strict=True):
                is_word = name in ("form", "lemma")
                columns[name] = [None if cell == NONE and not is_word else cell for cell in cells]
            columns[SPACE_AFTER] = [not glued for glued in block.is_glued]
            yield SentenceRow(block.line, columns)

    return SentenceFile((*NAMES, SPACE_AFTER), Columns("form", "upos"), sentences)


def conll_sentences(path: Path) -> SentenceFile:
    """Return the sentences of a file with a word per line, and a blank line between sentences.

    Columns are separated by tabs or, in files without any, by spaces, and are named "0", "1", ...;
    the word is the first, its label the last one. Lines that begin with `#` and do not have the
    columns of the others are comments.

    Raises:
        UserError: the file has no sentence; or, when they are read, lines differ in their columns.
    """
    width = next((len(cells) for _, cells in _cells(path, None) if cells), 0)
    if not width:
        raise UserError(f"{path}: no sentence in it")
    names = tuple(str(n) for n in range(width))

    def sentences() -> Iterator[SentenceRow]:
        words: list[list[str]] = []
        start = 0
        for number, cells in chain(_cells(path, width), [(0, [])]):
            if cells:
                start = start if words else number
                words.append(cells)
            elif words:
                columns = map(list, zip(*words, strict=True))
                yield SentenceRow(start, dict(zip(names, columns, strict=True)))
                words = []

    return SentenceFile(names, Columns("0", names[-1] if width > 1 else ""), sentences)


def _cells(path: Path, width: int | None) -> Iterator[tuple[int, list[str]]]:
    """Yield each line's number and cells, none of a blank line; comments are left out.

    Raises:
        UserError: a line has not `width` cells, unless this is None.
    """
    for number, line in enumerate(text_lines(path), 1):
        line = line.rstrip("\r\n")
        if not line.strip():
            yield number, []
            continue
        cells = [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()
        is_comment = line.startswith("#") and (
            len(cells) != width if width is not None else "\t" not in line
        )
        if is_comment or cells[0] == DOCUMENT:
            continue
        if width is not None and len(cells) != width:
            raise UserError(
                f"{path}:{number}: expected {width} columns as in the lines before, got "
                f"{len(cells)}; a blank line goes between sentences"
            )
        yield number, cells
