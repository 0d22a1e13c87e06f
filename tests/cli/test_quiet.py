"""`--quiet`: the result and errors, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreword.cli._options import options_of
from foreword.cli.main import run, verbs
from foreword.kinds import module_of
from tests.train import runs
from tests.tuning.runs import reviews


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quiet")
    runs.write_text(folder / "text")
    (folder / "tiny.toml").write_text(runs.recipe("encoder").dumps())
    for name, count in (("train", 24), ("dev", 12)):
        lines = [f"{e.text}\t{e.label}" for e in reviews(count, count)]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines, ""]))
    return folder


def said_by(capsys: pytest.CaptureFixture[str], place: Path, line: str, status: int = 0) -> str:
    """Run a command with `--quiet`, and return what it writes to the error stream."""
    capsys.readouterr()
    assert run([*line.format(place=place).split(), "--quiet"]) == status
    return capsys.readouterr().err


def test_quiet_leaves_the_result_alone(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pretrain = "pretrain {place}/tiny.toml --data {place}/text --out {place}/run"
    done = said_by(capsys, place, pretrain)
    assert done.startswith("done: ") and done.count("\n") == 1
    assert said_by(capsys, place, "resume {place}/run") == done
    assert said_by(capsys, place, f"{pretrain}2 --json") == ""
    tune = "tune {place}/run --train {place}/train.tsv --dev {place}/dev.tsv --epochs 1 --seeds 1"
    assert said_by(capsys, place, f"{tune} --json") == ""
    assert said_by(capsys, place, "evaluate {place}/run --json") == ""
    assert said_by(capsys, place, "prepare {place}/text --out {place}/shards --kind char") == ""
    assert said_by(capsys, place, "tokenizer train {place}/text --out {place}/t --kind char") == ""
    assert said_by(capsys, place, "check {place}/tiny.toml --data {place}/text") == ""
    assert said_by(capsys, place, "probe {place}/run --kind gradient_reach --json") == ""
    assert said_by(capsys, place, "score {place}/run --file {place}/text/0.txt --json") == ""


def test_quiet_leaves_errors(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "pretrain {place}/tiny.toml --data {place}/nowhere --out {place}/never"
    assert "nowhere" in said_by(capsys, place, line, status=2)


def test_every_verb_that_shows_progress_can_be_quiet() -> None:
    for name in verbs():
        module = module_of("cli", name)
        function = module.__name__.rpartition(".")[2]
        shows = "progress" in Path(module.__file__ or "").read_text(encoding="utf-8")
        if shows and hasattr(module, function):
            assert "quiet" in options_of(getattr(module, function)), name
