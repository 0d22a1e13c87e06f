"""RACE's files as published: a folder of articles, or articles in JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foreword.errors import UserError
from foreword.settings import kinds
from foreword.tables.choice import question_of
from foreword.tables.read import read_table
from foreword.tables.table import chosen_columns, labelled
from foreword.tuning.tasks.choice import Choice

ChoiceSuite: Any = kinds.load("probes", "choice")

ARTICLE: dict[str, Any] = {
    "id": "high1.txt",
    "article": "It was a red house.\nIt had three doors.",
    "questions": ["What colour is it?", "It has _ doors."],
    "options": [["red", "blue"], ["one", "two", "three"]],
    "answers": ["A", "C"],
}


def write(folder: Path, **changes: Any) -> Path:
    (folder / "high").mkdir(parents=True)
    (folder / "middle").mkdir()
    middle = {**ARTICLE, "id": "middle7.txt"}
    (folder / "high" / "1.txt").write_text(json.dumps({**ARTICLE, **changes}), encoding="utf-8")
    (folder / "middle" / "7.txt").write_text(json.dumps(middle), encoding="utf-8")
    return folder


def questions(path: Path) -> list[tuple[str, str, list[str], str]]:
    table, task = read_table(path), Choice()
    examples, skipped = labelled(
        table, chosen_columns(table, task.reader.columns, {}), task.reader.read
    )
    assert skipped == 0
    parts = ((question_of(example), example.label) for example in examples)
    return [(q.context, q.text, q.options, label) for q, label in parts]


def test_a_folder_of_articles_has_a_row_for_each_question(tmp_path: Path) -> None:
    first, second, *others = questions(write(tmp_path / "train"))
    assert first == (ARTICLE["article"], "What colour is it?", ["red", "blue"], "0")
    assert second[1:] == ("It has _ doors.", ["one", "two", "three"], "2")
    assert others == [first, second]
    suite = ChoiceSuite(files=str(tmp_path / "train"))
    assert [each.answer for each in suite.questions()] == ["red", "three", "red", "three"]


def test_articles_in_json_lines_are_read_alike(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text(f"{json.dumps(ARTICLE)}\n\n{json.dumps(ARTICLE)}\n", encoding="utf-8")
    assert questions(file) == questions(write(tmp_path / "train"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answers": ["A"]}, r"high.1\.txt: .*got 2 questions, 2 options, 1 answers"),
        ({"options": "red"}, r"high.1\.txt: expected RACE's article, questions"),
        ({"options": [["red", "blue"], ["one"]]}, "expected at least two options, got 1"),
        ({"answers": ["A", "E"]}, "'E' is none of the 3 options"),
    ],
)
def test_a_broken_article_is_refused_with_its_place(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        questions(write(tmp_path / "train", **changes))


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a folder without \.txt files"):
        next(read_table(tmp_path).rows())
    (tmp_path / "notes.txt").write_text("Dear diary", encoding="utf-8")
    with pytest.raises(UserError, match=r"notes\.txt: not JSON"):
        next(read_table(tmp_path).rows())


def test_a_folder_of_tables_with_a_note_beside_them_is_read_as_tables(tmp_path: Path) -> None:
    row = {"question": "What colour is it?", "options": ["red", "blue"], "answer": "B"}
    (tmp_path / "asked.jsonl").write_text(json.dumps(row), encoding="utf-8")
    (tmp_path / "SOURCE.txt").write_text("where it came from", encoding="utf-8")
    suite = ChoiceSuite(files=str(tmp_path))
    assert [each.answer for each in suite.questions()] == ["blue"]
