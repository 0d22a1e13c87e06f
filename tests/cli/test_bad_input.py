"""Bad input: one line that says what and where, status 2, and no partial files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from foreword.cli.main import run
from foreword.runs.run_folder import read_recipe
from foreword.text.tokenizer import Engine, Tokenizer
from tests.train import runs


class Case:
    """A folder with a text and a recipe, and the command that pretrains on them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.out, self.data = folder, folder / "run", folder / "text"
        self._capsys = capsys
        runs.write_text(self.data)
        self.recipe = self.write("tiny.toml", runs.recipe("encoder", steps=2).dumps())

    def write(self, name: str, content: str | bytes) -> str:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def words(self, *more: str, data: str | None = None, recipe: str | None = None) -> list[str]:
        start = ["pretrain", recipe or self.recipe, "--data", data or str(self.data)]
        return [*start, "--out", str(self.out), *more]

    def fails(self, words: list[str]) -> str:
        """Return the last line of a command that fails."""
        assert run(words) == 2
        captured = self._capsys.readouterr()
        assert captured.out == ""
        assert "Traceback" not in captured.err
        lines = [line for line in captured.err.splitlines() if line.startswith("foreword: ")]
        assert len(lines) == 1
        assert captured.err.splitlines()[-1] == lines[0]
        assert not self.out.exists()
        return lines[0]


@pytest.fixture
def case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Case:
    return Case(tmp_path, capsys)


Mistake = Callable[[Case], list[str]]


def text(name: str, content: str | bytes, *more: str) -> Mistake:
    """Pretraining on one file."""
    return lambda case: case.words(*more, data=case.write(name, content))


LINES = '{"text": "a line."}\n'
TEXTS: dict[str, tuple[Mistake, list[str]]] = {
    "no such file": (
        lambda case: case.words(data=str(case.folder / "nowhere.txt")),
        ["nowhere.txt: there is no such file"],
    ),
    "no text field": (
        text("a.jsonl", LINES + '{"body": "b", "id": 1}\n'),
        ["a.jsonl:2: no field 'text'", "body, id", "with --field NAME"],
    ),
    "not UTF-8": (
        text("latin.txt", b"all is well.\ncaf\xe9.\n"),
        ["latin.txt", "byte 16 (0xe9) is not UTF-8", "use --errors replace"],
    ),
    "too short": (
        text("short.txt", "a b c.\nd e f.\ng h i.\n"),
        [
            "short.txt: only 12 tokens, but a row needs 16",
            "give more text, or set a smaller packing.length",
        ],
    ),
}

SETTINGS: dict[str, tuple[list[str], list[str]]] = {
    "layout": (["--set", "layout=decoder"], ["layout.kind: this objective predicts in place"]),
    "places": (
        ["--set", "model.position.kind=learned", "--set", "model.position.length=8"],
        ["packing.length: rows of 16 tokens", "set model.position.length=16"],
    ),
    "spans of T5": (
        ["--set", "objective.kind=span_corruption", "--set", "objective.mean_span=200"],
        ["objective.mean_span: spans of 200 tokens", "only 2 of a row of 16 are masked"],
    ),
    "spans of XLNet": (
        ["--set", "objective.kind=permutation", "--set", "objective.max_span=500"],
        ["objective.max_span: spans of up to 500 tokens", "only 3 of a row of 16 are predicted"],
    ),
    "spans of UL2": (
        ["--set", "objective.kind=mixture"],
        ["objective.objectives[1].mean_span: spans of 8 tokens", "only 2 of a row of 16"],
    ),
    "memory": (
        [
            *("--set", "model.memory=8", "--set", "packing.kind=stream"),
            *("--set", "model.position.kind=learned", "--set", "model.position.length=16"),
        ],
        ["model.memory: position 'learned'", "'relative'"],
    ),
    "two budgets": (["--steps", "5", "--hours", "1"], ["give one budget, not 2: --hours, --steps"]),
    "a budget among the settings": (
        ["--hours", "1", "--set", "train.steps=5"],
        ["give one budget, not 2: --hours, --set train.steps"],
    ),
    "two of them": (
        ["--set", "train.tokens=9", "--set", "train.steps=5"],
        ["give one budget, not 2: --set train.steps, --set train.tokens"],
    ),
}


@pytest.mark.product(few=4)
@pytest.mark.parametrize("name", TEXTS)
def test_bad_text_is_refused_in_one_line(name: str, case: Case) -> None:
    mistake, message = TEXTS[name]
    line = case.fails(mistake(case))
    for words in message:
        assert words in line


@pytest.mark.parametrize("verb", ["pretrain", "check"])
def test_incompatible_settings_are_refused_before_text_is_read(
    case: Case, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foreword.data.text_files.TextFile.open", None)
    words = case.words("--set", "objective=causal")
    words = words if verb == "pretrain" else [verb, *words[1:4], *words[6:]]
    message = "layout.kind: 'encoder' requires an objective that predicts in place"
    assert message in case.fails(words)


@pytest.mark.product(few=6)
@pytest.mark.parametrize("name", SETTINGS)
def test_bad_settings_are_refused_in_one_line(name: str, case: Case) -> None:
    more, message = SETTINGS[name]
    line = case.fails(case.words(*more))
    for words in message:
        assert words in line


def test_bytes_that_are_not_utf8_can_be_replaced(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "some words of the text.\n" * 40
    data = case.write("latin.txt", words.encode() + b"caf\xe9.\n")
    more = ["--errors", "replace", "--set", "prepare.heldout=0"]
    assert run(case.words(*more, data=data)) == 0
    assert "1 bytes replaced" in capsys.readouterr().err


@pytest.mark.full
def test_options_set_how_text_is_read(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    lines = '{"body": "some words of the text."}\n' * 40
    data = case.write("a.jsonl", lines)
    words = case.words("--field", "body", "--set", "prepare.heldout=0", data=data)
    assert run(["check", words[1], "--data", data, *words[6:]]) == 0
    assert run(words) == 0
    assert read_recipe(case.out).read.field == "body"
    shards = str(case.folder / "shards")
    apart = ["--kind", "char", "--heldout", "0"]
    assert run(["prepare", data, "--out", shards, "--field", "body", *apart]) == 0
    capsys.readouterr()
    case.out = case.folder / "other"
    line = case.fails(case.words("--field", "body", data=shards))
    assert f"--field: {shards} holds prepared text, which was read already" in line
    line = case.fails(case.words(str(case.data), data=shards))
    assert f"{shards}: holds token shards, not text; 'foreword pretrain' accepts such" in line


def test_text_shorter_than_a_row_is_named(case: Case) -> None:
    bert = case.write("bert.toml", runs.recipe("bert").dumps())
    for recipe in (bert, case.recipe):
        data = case.write("one.txt", "The cat sat. It ran.\n")
        line = case.fails(case.words(recipe=recipe, data=data))
        assert f"{case.folder / 'one.txt'}: only" in line
        assert "tokens, but a row needs" in line


def test_text_without_pairs_is_named(case: Case) -> None:
    bert = case.write("bert.toml", runs.recipe("bert").dumps())
    lines = case.write("lines.txt", "the cat sat on a house.\n" * 90)
    more = ["--documents", "line", "--set", "prepare.heldout=0", str(case.folder / "lines.txt")]
    line = case.fails(case.words(*more, recipe=bert, data=lines))
    assert f"{lines} and 1 more: a pair objective on a corpus whose documents have one" in line


def test_bad_recipes_are_refused_in_one_line(case: Case) -> None:
    line = case.fails(case.words(recipe="bert_tinny"))
    assert "no recipe 'bert_tinny'" in line and "did you mean 'bert_tiny'?" in line
    line = case.fails(case.words("--set", "model.layrs=3"))
    assert line.startswith("foreword: model.layrs: kind 'transformer' has no such setting")


def test_a_tokenizer_without_mask_is_refused_for_masked(case: Case) -> None:
    state = json.dumps(
        {
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": {"type": "Whitespace"},
            "model": {
                "type": "WordLevel",
                "vocab": {w: n for n, w in enumerate(["[UNK]", "[CLS]", "[SEP]", *runs.WORDS])},
                "unk_token": "[UNK]",
            },
        }
    )
    Tokenizer(Engine.from_str(state)).save(case.folder / "bare")
    line = case.fails(case.words("--tokenizer", str(case.folder / "bare")))
    assert "the tokenizer has no special token [MASK]" in line


def test_a_folder_with_a_run_is_refused_and_unchanged(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(case.words()) == 0
    before = {path: path.stat().st_mtime_ns for path in case.out.rglob("*")}
    assert run(case.words()) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"{case.out}: already holds a run; 'foreword resume {case.out}' continues it" in line
    assert {path: path.stat().st_mtime_ns for path in case.out.rglob("*")} == before


def test_a_folder_with_other_files_is_refused_and_unchanged(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    case.out.mkdir()
    (case.out / "letters.txt").write_text("dear")
    assert run(case.words()) == 2
    assert f"{case.out}: is not empty; choose another --out" in capsys.readouterr().err
    assert [path.name for path in case.out.iterdir()] == ["letters.txt"]
    (case.folder / "file").write_text("")
    case.out = case.folder / "file"
    assert run(case.words()) == 2
    assert "is a file; choose another --out" in capsys.readouterr().err


def test_an_empty_folder_is_kept_after_a_mistake(case: Case) -> None:
    case.out.mkdir()
    assert run(case.words(data=case.write("short.txt", "a b.\nc d.\n"))) == 2
    assert list(case.out.iterdir()) == []


@pytest.mark.parametrize("mine", ["tokenizer/tokenizer.json", "start/weights", "run.json"])
def test_files_named_like_those_of_a_run_are_kept(
    mine: str, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    (case.out / mine).parent.mkdir(parents=True)
    (case.out / mine).write_text('{"mine": 1}')
    for data in (str(case.folder / "nowhere.txt"), None):
        assert run(case.words("--tokenizer", str(case.out / "tokenizer"), data=data)) == 2
        assert f"{case.out}: is not empty; choose another --out" in capsys.readouterr().err
        assert [p for p in case.out.rglob("*") if p.is_file()] == [case.out / mine]
        assert (case.out / mine).read_text() == '{"mine": 1}'


def test_a_run_killed_at_its_start_is_started_again(case: Case) -> None:
    (case.out / "tokenizer").mkdir(parents=True)
    (case.out / "run.json").write_text('{"foreword": "0.1.0"}')
    (case.out / "tokenizer" / "tokenizer.json").write_text("of another model")
    assert run(case.words(data=str(case.folder / "nowhere.txt"))) == 2
    assert sorted(path.name for path in case.out.iterdir()) == ["run.json", "tokenizer"]
    assert run(case.words()) == 0
    assert Tokenizer.load(case.out / "tokenizer").kind["kind"] == "word"


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="needs a place none can write to")
def test_an_unwritable_folder_is_refused(case: Case) -> None:
    case.out = Path("/proc/foreword/run")
    line = case.fails(case.words())
    assert "/proc/foreword/run" in line
    assert "cannot be written" in line


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may all")
def test_a_folder_without_permission_is_refused(case: Case) -> None:
    (case.folder / "locked").mkdir(mode=0o500)
    case.out = case.folder / "locked" / "run"
    assert "cannot be written: Permission denied" in case.fails(case.words())


def test_evaluate_says_where_a_file_goes(case: Case) -> None:
    file = case.write("test.jsonl", "{}")
    line = case.fails(["evaluate", file])
    assert line == f"foreword: {file}: a file, not a run folder; give it as --data {file}"
