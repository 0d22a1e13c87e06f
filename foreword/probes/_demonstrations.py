"""Tasks that are shown to a model by examples in its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foreword.errors import UserError
from foreword.probes._files import files_of, rows_of
from foreword.tables.columns import Columns, example_of
from foreword.tables.files import IN_FOLDERS
from foreword.tables.read import read_table
from foreword.tables.table import chosen_columns

WORDS = Path(__file__).parent / "data" / "english_french.jsonl"
LONGEST = 99  # of the numbers to add
OFFERED = 3  # wrong answers to choose from, where a task has no labels


@dataclass(frozen=True)
class Demonstration:
    """A question with its answer.

    Attributes:
        text: the question, such as `dog`.
        answer: its answer, such as `chien`.
        others: wrong answers.
    """

    text: str
    answer: str
    others: tuple[str, ...]


def labelled_texts(files: str) -> list[Demonstration]:
    """Return the texts of a labelled table, each with the other labels as wrong answers.

    Raises:
        UserError: the table cannot be read, or has fewer than two labels.
    """
    pairs = _read(files)
    labels = sorted({label for _, label in pairs})
    if len(labels) < 2:
        raise UserError(f"probe.files: {files}: expected two labels or more, got {len(labels)}")
    return [
        Demonstration(text, label, tuple(other for other in labels if other != label))
        for text, label in pairs
    ]


def translations(files: str, rng: np.random.Generator) -> list[Demonstration]:
    """Return words and their translations, by default English and French, in a random order.

    Raises:
        UserError: the table cannot be read, or has fewer than four translations.
    """
    pairs = _read(files or str(WORDS))
    answers = sorted({answer for _, answer in pairs})
    if len(answers) <= OFFERED:
        raise UserError(f"probe.files: {files}: expected more than {OFFERED} different answers")
    return [
        Demonstration(text, answer, _others(answer, answers, rng))
        for text, answer in (pairs[n] for n in rng.permutation(len(pairs)))
    ]


def scrambled_words(rng: np.random.Generator) -> list[Demonstration]:
    """Return English words whose letters are in another order: `koob`, `book`."""
    words = sorted(text for text, _ in _read(str(WORDS)) if 3 <= len(text) <= 6)
    demonstrations = []
    for n in rng.permutation(len(words)):
        word = shuffled = words[n]
        while shuffled == word:
            shuffled = "".join(rng.permutation(list(word)))
        # Words of the same length, so that length tells nothing.
        near = [other for other in words if len(other) == len(word)]
        demonstrations.append(Demonstration(shuffled, word, _others(word, near, rng)))
    return demonstrations


def sums(rng: np.random.Generator, count: int) -> list[Demonstration]:
    """Return different sums of two numbers: `23 + 45`, `68`."""
    terms = [(a, b) for a in range(10, LONGEST + 1) for b in range(10, LONGEST + 1)]
    demonstrations = []
    for n in rng.permutation(len(terms))[:count]:
        first, second = terms[n]
        total = first + second
        wrong = [str(total + distance) for distance in (-10, -2, -1, 1, 2, 10)]
        demonstrations.append(
            Demonstration(f"{first} + {second}", str(total), _others(str(total), wrong, rng))
        )
    return demonstrations


def _others(answer: str, among: Sequence[str], rng: np.random.Generator) -> tuple[str, ...]:
    """Return wrong answers."""
    wrong = [other for other in among if other != answer]
    return tuple(wrong[n] for n in rng.permutation(len(wrong))[:OFFERED])


def _read(files: str) -> list[tuple[str, str]]:
    """Return the texts and labels of a table."""
    pairs = []
    for file in files_of(files, "probe.files", IN_FOLDERS):
        table = read_table(file)
        columns = chosen_columns(table, [Columns(), Columns("sentence", "label")], {})
        for line, row in rows_of(table, (columns.text, columns.label)):
            example = example_of(row, columns, f"{file}:{line}")
            if example is None or not example.label:
                what = columns.text if example is None else columns.label
                raise UserError(f"{file}:{line}: nothing in {what}")
            pairs.append((example.text.strip(), example.label))
    if not pairs:
        raise UserError(f"probe.files: {files}: no examples in it")
    return pairs
