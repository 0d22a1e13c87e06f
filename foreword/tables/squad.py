"""Questions about passages with their answers, in the layout of SQuAD's files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foreword.errors import UserError
from foreword.tables.columns import Columns

COLUMNS = ("id", "title", "context", "question", "answers")  # of a question
NEAR = 8  # characters between an answer and its offset that are put right
PASSAGE = Columns("context", "answers", "question")  # of questions about passages


def is_layout(data: Any) -> bool:
    """Return whether the items of a list are articles of paragraphs."""
    return isinstance(data, list) and any(isinstance(d, dict) and "paragraphs" in d for d in data)


def question_rows(articles: Sequence[Any], source: str) -> list[dict[str, Any]]:
    """Return the questions of articles, a row for each.

    Raises:
        UserError: an article has another layout.
    """
    try:
        questions = [
            (article.get("title"), paragraph["context"], qa)
            for article in articles
            for paragraph in article["paragraphs"]
            for qa in paragraph["qas"]
        ]
        rows = [
            dict(
                zip(
                    COLUMNS, (qa["id"], title, text, qa["question"], qa.get("answers")), strict=True
                )
            )
            for title, text, qa in questions
        ]
    except (TypeError, KeyError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else "a list or a table is missing"
        raise UserError(
            f"{source}: JSON, but not in SQuAD's layout, data > paragraphs > context and qas > id, "
            f"question and answers: {reason}"
        ) from None
    if not rows:
        raise UserError(f"{source}: no question in it")
    return rows


def read_answers(
    cell: Any, fields: Mapping[str, Callable[[Any], Any]], source: str
) -> list[tuple[Any, ...]]:
    """Return fields of the answers in a cell: a list of tables, or a table of lists.

    Args:
        cell: the cell of a table.
        fields: what makes a value of each field that is read, by its name.
        source: where the row came from, for messages.

    Raises:
        UserError: it is neither, or a field is missing.
    """
    try:
        if isinstance(cell, Mapping):
            rows = list(zip(*(cell[name] for name in fields), strict=True))
        else:
            rows = [tuple(answer[name] for name in fields) for answer in cell]
        return [
            tuple(make(value) for make, value in zip(fields.values(), row, strict=True))
            for row in rows
        ]
    except (TypeError, KeyError, ValueError):
        names = " and ".join(f"'{name}'" for name in fields)
        raise UserError(f"{source}: expected answers with {names}, got {cell!r:.60}") from None


def located(context: str, answer: str, start: int) -> tuple[str, int] | None:
    """Return an answer as the passage has it, and its first character there.

    It is at `start` or, but for white space, within `NEAR` of it; None if it is not, or if two
    places are as near.
    """
    if start >= 0 and answer and answer.strip() == answer == context[start : start + len(answer)]:
        return answer, start
    words = answer.split()
    begin = max(start + len(answer) - len(answer.lstrip()) - NEAR, 0)
    pattern = re.compile(r"\s+".join(map(re.escape, words)))
    room = begin + 2 * NEAR + 1
    found = (
        []
        if not words
        else [
            match
            for n in range(begin, min(room, len(context)))
            if (match := pattern.match(context, n))
        ]
    )
    found.sort(key=lambda match: abs(match.start() - start))
    distances = [abs(match.start() - start) for match in found]
    if not found or distances[1:2] == distances[:1]:
        return None
    return found[0].group(), found[0].start()
