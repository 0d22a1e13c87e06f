"""Questions about passages with their answers, in the layout of SQuAD's files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from foreword.errors import UserError
from foreword.tables.columns import Columns

PASSAGE = Columns("context", "answers", "question")  # of questions about passages


def question_rows(data: Any, source: str) -> list[dict[str, Any]]:
    """Return the questions of a file's content, a row for each.

    Raises:
        UserError: it has another layout.
    """
    try:
        questions = [
            (article.get("title"), paragraph["context"], qa)
            for article in data["data"]
            for paragraph in article["paragraphs"]
            for qa in paragraph["qas"]
        ]
        return [
            {"id": qa["id"], "title": title, "context": context, "question": qa["question"]}
            | {"answers": qa.get("answers")}
            for title, context, qa in questions
        ]
    except (TypeError, KeyError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else "a list or a table is missing"
        raise UserError(
            f"{source}: JSON, but not in SQuAD's layout, data > paragraphs > context and qas > id, "
            f"question and answers: {reason}"
        ) from None


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
