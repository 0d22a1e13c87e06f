"""Labs: what is right, what a wrong answer hears, and that the shipped ones fit their solutions."""

from __future__ import annotations

import json
import reprlib
from pathlib import Path
from typing import Any

import pytest

import foreword
from foreword.cli.main import run
from foreword.errors import UserError
from foreword.labs import lab as labs
from foreword.labs.page import page
from foreword.settings import config
from tests.labs.make import made
from tests.labs.solutions import SOLUTIONS, resuming

DOCS = Path(__file__).resolve().parents[2] / "docs" / "labs"
SHIPPED = pytest.mark.parametrize("name", config.LABS.names())
DRAFT = """
title = "Counting"
text = '''
The cat saw the dog.
'''

[[parts]]
name = "types"
question = "Types?"
answer = "int"
right = 4
[[parts.wrong]]
answer = 5
hint = "These are the tokens."

[[parts]]
name = "words"
question = "Types, again?"
answer = "[text]"
sorted = true
right = ["the", "cat", "saw", "dog"]

[[parts]]
name = "shares"
question = "Shares of the and cat?"
answer = "[float]"
right = [0.4, -0.2]
within = 0.01
measured = "By hand."
[[parts.wrong]]
answer = [0.5, 0.25]
hint = "The last token counts."
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    draft = tmp_path / "draft.toml"
    draft.write_text(DRAFT)
    foreword.lab.make(draft, out=tmp_path / "lab.toml")
    return tmp_path / "lab.toml"


@pytest.mark.parametrize(
    ("part", "answer", "is_right", "hint"),
    [
        ("types", 4, True, ""),
        ("types", 4.0, True, ""),
        ("types", 5, False, "These are the tokens."),
        ("types", 6, False, ""),
        ("words", ["dog", "cat", "the", "saw"], True, ""),
        ("words", ["dog", "cat", "the"], False, ""),
        ("shares", [0.4, -0.2], True, ""),
        ("shares", [0.4099, -0.2099], True, ""),
        ("shares", [0.391, -0.191], True, ""),
        ("shares", [0.4101, -0.2], False, ""),
        ("shares", [0.4, 0.2], False, ""),
        ("shares", [0.5, 0.25], False, "The last token counts."),
    ],
)
def test_an_answer_is_right_or_wrong(
    lab: Path, part: str, answer: Any, is_right: bool, hint: str
) -> None:
    graded = {one.part: one for one in labs.grade(labs.load(str(lab)), {part: answer}, "mine")}
    assert (graded[part].is_right, graded[part].hint) == (is_right, hint)
    assert [one.is_right for name, one in graded.items() if name != part] == [None, None]


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"type": 4}, "mine: the lab has no part 'type'; did you mean 'types'?"),
        ({"types": "four"}, "mine: types: expected a whole number, got 'four'"),
        ({"types": True}, "mine: types: expected a whole number, got True"),
        ({"types": 1.5}, "mine: types: expected a whole number, got 1.5"),
        ({"words": "the"}, "mine: words: expected a list of texts, got 'the'"),
        ({"shares": [1e308, 0]}, "mine: shares: expected a list of 2 numbers, got [1e+308, 0]"),
        ({"types": 10**400}, f"mine: types: expected a whole number, got {reprlib.repr(10**400)}"),
        ({"shares": [1.0]}, "mine: shares: expected a list of 2 numbers, got [1.0]"),
    ],
)
def test_a_bad_answer_is_one_clear_line(lab: Path, answers: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        labs.grade(labs.load(str(lab)), answers, "mine")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("right = 4\n", "", "parts[0].right: is needed"),
        ("right = 4\n", "right = 'four'\n", "parts[0].right: expected a whole number"),
        ("right = [0.4, -0.2]", "right = 'x'", "parts[2].right: expected a list of numbers"),
        ("answer = 5", "answer = 4", "parts[0].wrong[0].answer: the same answer as another one"),
        ("within = 0.01\n", "", "parts[2].within: of numbers, float, and of nothing else"),
        ('"[text]"', '"[word]"', "parts[1].answer: one of bool, int, text, float"),
        ('name = "words"', 'name = "types"', "parts: one or more questions, each with a name"),
    ],
)
def test_a_wrong_draft_is_one_clear_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    draft = tmp_path / "draft.toml"
    draft.write_text(DRAFT.replace(old, new))
    with pytest.raises(UserError) as caught:
        foreword.lab.make(draft, out=tmp_path / "lab.toml")
    assert str(caught.value).startswith(f"{draft}: {message}")
    assert not (tmp_path / "lab.toml").exists()


def test_the_commands_grade_files(
    lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, poor = tmp_path / "good.json", tmp_path / "poor.toml"
    good.write_text(
        json.dumps({"types": 4, "words": ["the", "cat", "saw", "dog"], "shares": [0.4, -0.2]})
    )
    poor.write_text("types = 5\n")
    assert run(["lab", "check", str(lab), str(good)]) == 0
    assert run(["lab", "check", str(lab), str(poor)]) == 1
    assert "types: These are the tokens." in capsys.readouterr().err
    assert run(["lab", "check", str(lab), str(good), str(poor), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [file["right"] for file in found["files"]] == [3, 0]
    assert found["files"][1]["parts"][1] == {"part": "words", "right": None, "hint": ""}
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    for files in ([bad, good, poor], [good, bad, tmp_path / "none.toml"]):
        assert run(["lab", "check", str(lab), *map(str, files), "--json"]) == 2
        found = {file["file"]: file for file in json.loads(capsys.readouterr().out)["files"]}
        assert found[str(good)]["right"] == 3
        assert str(bad) in found[str(bad)]["error"]
    assert run(["lab", "check", str(lab), str(bad), str(poor)]) == 2
    shown = "".join(capsys.readouterr())
    assert "Traceback" not in shown
    assert str(bad) in shown
    assert run(["lab", "check", str(tmp_path / "draft.toml"), str(good)]) == 2
    assert "'foreword lab make' writes it" in capsys.readouterr().err
    draft, other = tmp_path / "draft.toml", tmp_path / "other.toml"
    other.write_text(DRAFT)
    for out, status in [(draft, 2), (other, 2), (lab, 0)]:
        assert run(["lab", "make", str(draft), "--out", str(out)]) == status
    assert other.read_text() == draft.read_text() == DRAFT
    assert foreword.lab.check(lab, {"types": 4}).status == 1


def test_a_lab_does_not_tell_its_answers(lab: Path) -> None:
    text = lab.read_text()
    assert "right" not in text
    assert "0.4" not in text
    assert "dog" not in text.partition("[[parts]]")[2]


@SHIPPED
def test_the_page_of_a_shipped_lab_is_up_to_date(name: str) -> None:
    again = f"run: foreword lab show {name} > docs/labs/{name}.md"
    assert (DOCS / f"{name}.md").read_text(encoding="utf-8") == page(name, labs.load(name)), again
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert f"]({name}.md)" in index
    assert f"\n{name}\n" in index


@pytest.mark.full
@SHIPPED
def test_the_solution_of_a_shipped_lab_is_right_and_wrong_answers_get_their_hints(
    name: str,
) -> None:
    lab, solution = labs.load(name), SOLUTIONS[name]()
    right = {part: answers[0] for part, answers in solution.items()}
    assert all(one.is_right for one in labs.grade(lab, right, name))
    for part in lab.parts:
        for wrong, expected in zip(solution[part.name][1:], part.wrong, strict=True):
            graded = labs.grade(lab, {**right, part.name: wrong}, name)
            (found,) = [one for one in graded if not one.is_right]
            assert (found.part, found.hint) == (part.name, expected.hint)
    assert made(name) == lab, f"run: python -m tests.labs.make {name}"


@pytest.mark.full
def test_the_run_of_the_lab_on_resuming_is_within_its_range(tmp_path: Path) -> None:
    right = {part: answers[0] for part, answers in resuming(tmp_path).items()}
    assert all(one.is_right for one in labs.grade(labs.load("resuming"), right, "mine"))
