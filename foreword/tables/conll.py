"""Tables of sentences: CoNLL-U, and the CoNLL columns of shared tasks.

A row is a sentence, numbered by its first line; each column has a list with an item for each word.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa

from foreword.errors import UserError
from foreword.tables.columns import Columns
from foreword.tables.conllu import NAMES, NONE, word_lines
from foreword.tables.files import text_lines
from foreword.tables.table import BadRow, ExampleTable, Row

SPACE_AFTER = "space_after"  # the column that says whether a space follows each word
TEXTS = pa.list_(pa.string())
LOOKED_AT = 100  # words, to tell them from texts
DOCUMENT = "-DOCSTART-"  # the word of a line that begins a document, which is no sentence


def conllu_table(path: Path) -> ExampleTable:
    """Return the sentences of a CoNLL-U file; `_`, where there is no value, is None."""

    def sentences() -> Iterator[Row]:
        for block in word_lines(path):
            if block.wrong:
                yield block.line, BadRow(block.wrong)
                continue
            columns: dict[str, Any] = {}
            for name, cells in zip(NAMES, zip(*block.cells, strict=True), strict=True):
                is_word = name in ("form", "lemma")
                columns[name] = [None if cell == NONE and not is_word else cell for cell in cells]
            columns[SPACE_AFTER] = [not glued for glued in block.lacks_space_after]
            yield block.line, columns

    types = {**dict.fromkeys(NAMES, TEXTS), SPACE_AFTER: pa.list_(pa.bool_())}
    return ExampleTable(path, tuple(types), sentences, types, usual=Columns("form", "upos"))


def conll_table(path: Path) -> ExampleTable:
    """Return the sentences of a file with a word per line, and a blank line between sentences.

    Columns are separated by tabs or, in files without any, by spaces, and are named "0", "1", ...;
    the word is the first, its label the last one. Lines that begin with `#` and do not have the
    columns of the others are comments; before a sentence's first word also those that begin with
    `# ` or `## ` and have a tab. A word may be a space.

    Raises:
        UserError: the file has no sentence, or is a table of texts: most of its words are several.
    """
    first = list(islice((cells for _, cells in _cells(path, 0) if cells), LOOKED_AT))
    if not first:
        raise UserError(f"{path}: no sentence in it")
    if 2 * sum(" " in cells[0].strip() for cells in first) > len(first):
        raise UserError(
            f"{path}: a text per line, and expected a word per line, with its label after a tab; "
            "--task classify reads such a table"
        )
    width = len(first[0])
    names = tuple(str(n) for n in range(width))

    def sentences() -> Iterator[Row]:
        words: list[list[str]] = []
        start, wrong = 0, ""
        for number, cells in chain(_cells(path, width), [(0, [])]):
            if cells:
                start = start if words else number
                words.append(cells)
                if len(cells) != width and not wrong:
                    wrong = (
                        f"{path}:{number}: expected {width} columns as in the lines before, got "
                        f"{len(cells)}; a blank line goes between sentences"
                    )
            elif words:
                columns = dict(zip(names, map(list, zip_longest(*words)), strict=False))
                yield start, BadRow(wrong, columns) if wrong else columns
                words, wrong = [], ""

    usual = Columns("0", names[-1] if width > 1 else "")
    return ExampleTable(path, names, sentences, dict.fromkeys(names, TEXTS), usual=usual)


def _cells(path: Path, width: int) -> Iterator[tuple[int, list[str]]]:
    """Yield each line's number and cells, none of a blank line; comments are left out."""
    is_first = True  # of its sentence
    for number, line in enumerate(text_lines(path), 1):
        line = line.rstrip("\r\n")
        if not line.strip():
            yield number, []
            is_first = True
            continue
        is_tabbed = "\t" in line
        cells = [cell.strip() or cell for cell in line.split("\t")] if is_tabbed else line.split()
        is_comment = line.startswith("#") and (
            (is_tabbed and is_first and line.startswith(("# ", "## ")))
            or (len(cells) != width if width else not is_tabbed)
        )
        if is_comment or cells[0] == DOCUMENT:
            continue
        yield number, cells
        is_first = False
