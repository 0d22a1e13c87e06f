"""Every command and every piece of Python in docs/tutorial.md runs, at a tiny size."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from foreword.cli.main import run

TUTORIAL = Path(__file__).resolve().parents[1] / "docs" / "tutorial.md"
SMALLER = {
    "modern_encoder_mini": "modern_encoder_tiny",
    "8e6": "200",
    "--compare": "--from-scratch",
    "tune": "tune --epochs 1 --seeds 1",
}
SETTINGS = [
    "--set",
    "tokenizer.vocab=500",
    "--set",
    "packing.length=16",
    "--set",
    "prepare.heldout=0.3",
]


def blocks() -> list[tuple[str, str]]:
    """Return the language and the text of each block of commands or Python."""
    text = TUTORIAL.read_text(encoding="utf-8")
    return re.findall(r"^```(sh|python)\n(.*?)^```", text, re.M | re.S)


def words_of(command: str) -> list[str]:
    """Return the arguments of a command line, at a tiny size."""
    words = shlex.split(command)[1:]
    words = [part for word in words for part in shlex.split(SMALLER.get(word, shlex.quote(word)))]
    return words + (SETTINGS if words[0] in ("pretrain", "check") else [])


def write_texts(folder: Path) -> None:
    """Write texts to pretrain on, and labelled sentences."""
    lines = [f"Paris is the capital number {n}. The cat sat on mat {n + 1}." for n in range(150)]
    (folder / "texts").mkdir()
    (folder / "texts" / "wiki.txt").write_text("\n\n".join(lines), encoding="utf-8")
    (folder / "reviews").mkdir()
    rows = ["a fine film\t1", "a bad film\t0"] * 6
    for name in ("train", "dev"):
        table = "\n".join(["sentence\tlabel", *(f"{name} {row}" for row in rows)])
        (folder / "reviews" / f"{name}.tsv").write_text(table + "\n", encoding="utf-8")
    more = "\n".join(["sentence", *(f"a film of {n} cats" for n in range(200))])
    (folder / "reviews" / "more.csv").write_text(more + "\n", encoding="utf-8")


@pytest.mark.full
def test_the_tutorial_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    verbs = []
    for language, text in blocks():
        if language == "python":
            exec(compile(text, str(TUTORIAL), "exec"), {})  # noqa: S102
            continue
        for command in text.replace("\\\n", " ").splitlines():
            if command.startswith("foreword "):
                words = words_of(command)
                assert run(words) == 0, f"{command}\n{capsys.readouterr().err}"
                verbs.append(words[0])
    assert {"check", "pretrain", "fill", "tune", "predict", "export", "report"} <= set(verbs)
    assert (tmp_path / "predictions.csv").is_file()
