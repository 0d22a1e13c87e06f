"""Plug-ins: kinds outside the package, found only if their folder is named."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

import foreword
from foreword.cli.main import run
from foreword.disk import stored
from foreword.errors import UserError
from foreword.runs.recipe import load_recipe
from foreword.settings import config, kinds, plugins
from tests.train import runs

EXAMPLES = Path(foreword.__file__).parents[1] / "docs" / "examples"
OBJECTIVE = '''
"""An objective for a test."""
from dataclasses import dataclass

from foreword.objectives.causal import Causal


@dataclass(frozen=True)
class Mine(Causal):
    """Causal prediction under another name."""

    scale: float = 1.0
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "plugged", "objectives/mine", OBJECTIVE)


def write(folder: Path, kind: str, text: str) -> Path:
    file = folder / f"{kind}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return folder


def fail(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which a command fails."""
    capsys.readouterr()
    assert run(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return lines[0].removeprefix("foreword: ")


def test_a_named_folder_adds_its_kinds_until_the_block_ends(folder: Path) -> None:
    assert "mine" not in kinds.names("objectives")
    with plugins.plugins([folder]):
        assert "mine" in kinds.names("objectives")
        assert kinds.name_of(kinds.load("objectives", "mine")()) == "mine"
    assert "mine" not in kinds.names("objectives")


def test_a_recipe_with_a_plug_in_survives_writing_and_reading(folder: Path) -> None:
    with plugins.plugins([folder]):
        made = load_recipe("gpt2_tiny", ["objective.kind=mine", "objective.scale=2.0"])
        assert config.build(type(made), config.to_table(made)) == made
        assert made.objective.scale == 2.0  # type: ignore[attr-defined]


def test_kinds_are_listed_with_their_first_lines(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--plugins", str(folder), "show", "kinds", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["objectives"]["mine"] == "Causal prediction under another name."
    assert run(["show", "kinds", f"--plugins={EXAMPLES}", "--json", "--plugins", str(folder)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {"mine", "skip_causal"} <= set(shown["objectives"])


def test_a_verb_may_be_a_plug_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--plugins", str(EXAMPLES), "hello", "reader"]) == 0
    assert "Hello, reader." in capsys.readouterr().out
    assert "no command 'hello'" in fail(["hello", "reader"], capsys)


def test_listing_kinds_runs_no_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, "objectives/loud", "raise SystemExit('run')")
    assert run(["show", "kinds", "--json", "--plugins", str(folder)]) == 0
    assert run(["show", "gpt2_tiny", "--json", "--plugins", str(folder)]) == 0


def test_plug_ins_are_not_read_from_the_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert "mine" not in kinds.names("objectives")


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("objectives/bad", "x = (\n", r"bad\.py:1: plug-in: SyntaxError: "),
        ("objectives/bad", "\nimport nowhere_at_all\n", r"bad\.py:2: plug-in: ModuleNotFoundError"),
        ("objectives/bad", "\n\n1 / 0\n", r"bad\.py:3: plug-in: ZeroDivisionError: "),
        ("objectives/bad", "raise SystemExit\n", r"bad\.py:1: plug-in: SystemExit"),
        ("objectives/bad", "class Other: ...\n", r"bad\.py: has no class Bad; "),
        ("objectives/bad", "class Bad: ...\n", r"bad\.py:1: Bad is not a frozen dataclass"),
        (
            "objectives/bad",
            OBJECTIVE.replace(
                "objectives.causal import Causal", "objectives._contract import Term as Causal"
            ).replace("Mine", "Bad"),
            r"bad\.py:\d+: Bad does not define corrupt, heads, loss_from_states, predicts",
        ),
    ],
)
def test_a_broken_plug_in_is_reported_in_one_line_with_its_file(
    kind: str, text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, kind, text)
    words = ["show", "gpt2_tiny", "--set", "objective.kind=bad", "--plugins", str(tmp_path)]
    assert re.search(message, fail(words, capsys))


def test_an_error_in_a_plug_ins_code_names_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verb = """from dataclasses import dataclass
from foreword.verbs._contract import Verb
@dataclass(frozen=True)
class Crash(Verb):
    def __call__(self):
        [][1]
"""
    write(folder, "verbs/crash", verb)
    error = fail(["crash", "--plugins", str(folder)], capsys)
    assert error.endswith("crash.py:6: plug-in: IndexError: list index out of range")


def test_impossible_names_and_folders_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["show", "kinds", "--plugins"]
    assert fail([*words, str(tmp_path / "no")], capsys).endswith("no: no such folder")
    assert fail(words, capsys) == "--plugins: needs a folder"
    other = write(tmp_path / "other", "objectives/mine", OBJECTIVE)
    assert "has the name of the kind in" in fail(
        [*words, str(folder), *words[2:], str(other)], capsys
    )
    shadow = write(tmp_path / "shadow", "objectives/causal", OBJECTIVE)
    assert "has the name of the shipped kind" in fail([*words, str(shadow)], capsys)
    typo = write(tmp_path / "typo", "objective/mine", OBJECTIVE)
    assert "objective: not a folder of kinds; did you mean 'objectives'?" in fail(
        [*words, str(typo)], capsys
    )


def test_an_installed_package_adds_its_kinds(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "my_kinds"
    write(package, "objectives/mine", OBJECTIVE)
    (package / "__init__.py").write_text("")
    info = tmp_path / "site" / "my_kinds-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-kinds\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[foreword.kinds]\nmine = my_kinds\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    importlib.invalidate_caches()
    plugins._installed.cache_clear()
    try:
        made = kinds.load("objectives", "mine")()
        (noted,) = plugins.used_by(made)
    finally:
        monkeypatch.undo()
        plugins._installed.cache_clear()
    assert noted["package"] == "my-kinds 1.2" and noted["kinds"] == ["objectives/mine"]
    with pytest.raises(UserError, match=r"objectives/mine, which is missing; install my-kinds 1.2"):
        plugins.require_noted([noted], tmp_path)


def test_a_run_records_its_plug_ins_and_loads_them_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = runs.write_text(tmp_path / "text")
    with plugins.plugins([folder]):
        made = runs.build(runs.table() | {"objective": {"kind": "mine"}})
        trained = runs.begin(made, text, tmp_path / "run")
        runs.die_at(trained, 8)
    (noted,) = stored.read(trained / "run.json")["plugins"]
    assert noted["folder"] == str(folder) and noted["kinds"] == ["objectives/mine"]
    assert list(noted["checksums"]) == ["objectives/mine.py"]

    for words in (["resume", str(trained)], ["score", str(trained), "the cat"]):
        assert fail(words, capsys) == (
            f"{trained}: uses the plug-in kind objectives/mine, which is missing; add --plugins "
            f"{folder}"
        )
    assert run(["score", str(trained), "the cat", "--json", "--plugins", str(folder)]) == 0
    write(folder, "objectives/mine", OBJECTIVE + "\n# changed\n")
    capsys.readouterr()
    assert run(["resume", str(trained), "--json", "--plugins", str(folder)]) == 0
    captured = capsys.readouterr()
    assert "the plug-in objectives/mine has changed since the run began" in captured.err
    assert json.loads(captured.out)["done"] is True
