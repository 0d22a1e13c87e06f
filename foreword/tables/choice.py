"""Multiple-choice questions in tables: RACE's, ARC's and COPA's layouts, and similar ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from foreword.disk import stored
from foreword.errors import UserError
from foreword.tables.columns import Columns, label_of, text_of
from foreword.tables.examples import Labelled

CONTEXTS = ("article", "context", "passage")  # columns of a text that the question is about
COPA = {"cause": "What was the cause?", "effect": "What was the effect?"}
COLUMNS = (
    Columns("question", "answer", "options"),
    Columns("question", "answerKey", "choices"),
    Columns("query", "gold", "choices"),
    Columns("premise", "label", "choice1"),
    Columns("question", "answerKey", "question"),
    Columns("question", "answer", "choices"),
)


def choice_example(row: Mapping[str, Any], columns: Columns, source: str) -> Labelled | None:
    """Return the question of a row; None if it has no text.

    Raises:
        UserError: there are fewer than two options, one is empty, or the answer is none.
    """
    options, names, are_texts = _options(row, columns, source)
    question = row.get(columns.text)
    question = question.get("stem") if isinstance(question, Mapping) else question
    if columns.pair == "choice1":  # COPA asks in another column
        relation = text_of(row.get("question"), source)
        question = f"{text_of(question, source)} {COPA.get(relation, relation)}".strip()
    text = text_of(question, source)
    if not text.strip():
        return None
    if len(options) < 2:
        raise UserError(f"{source}: expected at least two options, got {len(options)}")
    for number, option in enumerate(options):
        if not option.strip():
            raise UserError(f"{source}: option {number} is empty")
    context = " ".join(text_of(row[c], source) for c in CONTEXTS if row.get(c) is not None)
    given = row.get(columns.label) if columns.label else None
    answer = label_of(given, source).strip()
    # A number beside options that are texts is none of them, but counts them from 0.
    if isinstance(given, Real) and are_texts and answer.isdecimal():
        label = str(_in_range(int(answer), answer, options, source))
    else:
        label = str(_number_of(answer, options, names, source)) if answer else ""
    pair = stored.to_json([context, *options])
    return Labelled(text, label, pair, source)


class ChoiceQuestion(NamedTuple):
    """A question with its options, and the text it is about, "" for none."""

    context: str
    text: str
    options: list[str]


def question_of(example: Labelled) -> ChoiceQuestion:
    """Return the parts of an example of multiple choice."""
    context, *options = json.loads(example.pair or '[""]')
    return ChoiceQuestion(context, example.text, options)


class _Options(NamedTuple):
    """The options of a row.

    Attributes:
        texts: the options.
        names: their names; None if they have none.
        are_texts: whether they have no names and are written as texts, not as numbers.
    """

    texts: list[str]
    names: list[str] | None
    are_texts: bool


def _options(row: Mapping[str, Any], columns: Columns, source: str) -> _Options:
    """Return the options of a row."""

    def named(texts: Iterable[Any], names: Iterable[Any]) -> _Options:
        texts = [text_of(text, source) for text in texts]
        return _Options(texts, [label_of(name, source) for name in names], False)

    options = row.get(columns.pair)
    if columns.pair == "choice1":  # COPA has a column for each
        columns_of_options = (row.get(f"choice{n}") for n in range(1, 10))
        options = [option for option in columns_of_options if option is not None]
    options = options.get("choices", options) if isinstance(options, Mapping) else options
    if isinstance(options, Mapping):  # {"text": [...], "label": [...]}
        return named(options.get("text") or (), options.get("label") or ())
    if not isinstance(options, list | tuple | np.ndarray):
        raise UserError(f"{source}: '{columns.pair}' is not a list of options")
    if all(isinstance(option, Mapping) for option in options):
        return named(
            [option.get("text") for option in options], [option.get("label") for option in options]
        )
    are_texts = all(isinstance(option, str) for option in options)
    return _Options([text_of(option, source) for option in options], None, are_texts)


def _number_of(answer: str, options: Sequence[str], names: list[str] | None, source: str) -> int:
    """Return the number of an answer, given as text: by name, number, text or letter."""
    if names is not None and answer in names:
        return names.index(answer)
    may_be = {number for number, option in enumerate(options) if option == answer}
    if answer.isdecimal() and not names and int(answer) < len(options):
        may_be.add(int(answer))
    if len(may_be) > 1:
        several = " and ".join(f"'{options[number]}'" for number in sorted(may_be))
        raise UserError(
            f"{source}: the answer '{answer}' may be option {several}; give its letter, or its "
            "number from 0 as a number"
        )
    if may_be:
        return may_be.pop()
    number = -1
    if len(answer) == 1 and answer.isascii() and answer.isupper() and not names:
        number = ord(answer) - ord("A")
    return _in_range(number, answer, options, source)


def _in_range(number: int, answer: object, options: Sequence[str], source: str) -> int:
    """Return the number of an option."""
    if not 0 <= number < len(options):
        raise UserError(f"{source}: the answer '{answer}' is none of the {len(options)} options")
    return number
