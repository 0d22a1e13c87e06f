"""Sizes beyond the memory are refused in one line, before anything is built."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from foreword.cli.main import run
from foreword.runs import sizes
from tests.train import runs

GIGABYTE = 10**9


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    file = tmp_path / "tiny.toml"
    made = runs.recipe("encoder", steps=2, device="cpu").dumps()
    file.write_text(made)
    return str(file)


@pytest.fixture
def text(tmp_path: Path) -> str:
    return str(runs.write_text(tmp_path / "text"))


def failed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize("verb", ["pretrain", "check", "show"])
def test_a_size_beyond_all_memory_is_refused_at_once(
    verb: str,
    recipe: str,
    text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sizes, "memory_of", lambda _: GIGABYTE // 5)
    words = [verb, recipe, *(["--data", text] if verb != "show" else [])]
    words += ["--set", "tokenizer=wordpiece", "--set", "model.layers=1e9"]
    words += ["--out", str(tmp_path / "run")] if verb == "pretrain" else []
    began = time.process_time()
    line = failed(words, capsys)
    assert time.process_time() - began < 1.5
    assert line.startswith("foreword: the run needs at least ")
    assert "there is 200.0 MB" in line or "1,000 machines like this one have 200.0 GB" in line
    assert not (tmp_path / "run").exists()


def test_a_comparison_with_a_cell_beyond_all_memory_is_refused(
    recipe: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(
        f'[[cells]]\nlabel = "deep"\nrecipe = "{recipe}"\nset.model.layers = 1_000_000_000\n'
    )
    words = ["compare", str(grid), "--data", text, "--steps", "2", "--out", str(tmp_path / "out")]
    line = failed([*words, "--dry-run"], capsys)
    assert line.startswith("foreword: cell 'deep': the run needs at least ")
    assert not (tmp_path / "out" / "data").exists()


@pytest.mark.full
def test_check_estimates_a_model_too_large_for_the_machine(
    recipe: str,
    text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [recipe, "--data", text]
    assert run(["check", *words]) == 0
    measured = capsys.readouterr().out
    monkeypatch.setattr(sizes, "memory_of", lambda _: 60_000)
    monkeypatch.setattr(sizes, "TOKEN_BYTES", 1)
    assert "and there is 60.0 kB" in failed(
        ["pretrain", *words, "--out", str(tmp_path / "run")], capsys
    )
    assert run(["check", *words]) == 0
    captured = capsys.readouterr()
    assert "too large" in captured.out
    assert "no steps are taken" in captured.err
    for line in measured.splitlines():
        if line.startswith(("parameters", "budget", "text")):
            assert line in captured.out


@pytest.fixture(scope="module")
def runs_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("runs")
    text = runs.write_text(folder / "text")
    made = {}
    for family in ("decoder", "encoder_decoder", "lstm"):
        run_folder = runs.begin(runs.recipe(family, steps=1), text, folder / family)
        runs.train_run(run_folder)
        made[family] = str(run_folder)
    return made


@pytest.mark.full
@pytest.mark.parametrize(
    ("family", "words", "message"),
    [
        ("decoder", ["generate", "the", "--samples", "2000000000"], "--samples: 2,000,000,000 tex"),
        ("decoder", ["generate", "the", "--beams", "2000000000"], "--beams: 2,000,000,000 beams"),
        ("lstm", ["generate", "the", "--tokens", "2000000000"], "--tokens: texts of 2,000,000,000"),
        ("encoder_decoder", ["fill", "<extra_id_0> cat", "--top", "1000000000"], "--top: 2,000,00"),
    ],
)
def test_more_text_than_memory_holds_is_refused(
    family: str,
    words: list[str],
    message: str,
    runs_of: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = failed([words[0], runs_of[family], *words[1:]], capsys)
    assert line.startswith(f"foreword: {message}")
    assert "is available; ask for fewer" in line


@pytest.mark.parametrize(
    "words",
    [
        ["pretrain", "bert_tiny", "--data", "caf\udce9.txt", "--out", "run"],
        ["pretrain", "bert_tiny", "--data", "text", "--out", "run", "--set", "description=\udcff"],
        ["fill", "run", "the [MASK] \udcff"],
        ["\udcff"],
    ],
)
def test_an_argument_that_is_not_utf8_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    number = next(n for n, word in enumerate(words, 1) if "\udcff" in word or "\udce9" in word)
    line = failed(words, capsys)
    assert line.startswith(f"foreword: argument {number} (")
    assert "not UTF-8" in line
