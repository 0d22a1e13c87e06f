"""RACE as published: a folder of articles, each a file of JSON with its questions and options.

Reference: Lai et al. 2017, "RACE: Large-scale reading comprehension dataset from examinations".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from foreword.errors import UserError
from foreword.tables.files import IN_FOLDERS, ending_of, read_json

FIELDS = ("article", "questions", "options", "answers")  # of an article; the last three are lists
COLUMNS = ("id", "article", "question", "options", "answer")  # of a question


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder of text files and no tables, as RACE's are."""
    if not path.is_dir() or any(ending_of(file) in IN_FOLDERS for file in path.iterdir()):
        return False
    return next(path.rglob("*.txt"), None) is not None


def folder_questions(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the questions of all articles below a folder, in the order of the files' names.

    Raises:
        UserError: there is no article, or a file is something else.
    """
    files = sorted(folder.rglob("*.txt"))
    if not files:
        raise UserError(
            f"{folder}: a folder without .txt files; of folders only RACE's are read, an article "
            f"in each file as JSON with {', '.join(FIELDS)}"
        )
    for file in files:
        yield from article_questions(read_json(file), str(file))


def article_questions(article: Any, source: str) -> Iterator[dict[str, Any]]:
    """Yield the questions of an article, a row for each.

    Args:
        article: the article; without `answers`, as in a test, its questions have none.
        source: where it came from, for messages.

    Raises:
        UserError: it is not an article, or its lists differ in length.
    """
    article = article if isinstance(article, Mapping) else {}
    questions, options = article.get("questions"), article.get("options")
    answers = article.get("answers", [None] * len(questions or ()))
    lists = (questions, options, answers)
    if "article" not in article or not all(isinstance(each, list) for each in lists):
        raise UserError(f"{source}: expected RACE's {', '.join(FIELDS)}, the last three as lists")
    if len({len(each) for each in lists}) > 1:
        counts = ", ".join(f"{len(each)} {n}" for n, each in zip(FIELDS[1:], lists, strict=True))
        raise UserError(f"{source}: expected as many of each; got {counts}")
    name = str(article.get("id", Path(source).name))
    for number, values in enumerate(zip(*lists, strict=True)):
        yield dict(zip(COLUMNS, (f"{name}-{number}", article["article"], *values), strict=True))
