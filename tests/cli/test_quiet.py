"""`--quiet`: the result and errors, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreword.cli.main import run
from tests.train import runs
from tests.tuning.runs import reviews


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quiet")
    runs.write_text(folder / "text")
    (folder / "tiny.toml").write_text(runs.recipe("encoder").dumps())
    for name, count in (("train", 24), ("dev", 12)):
        lines = [f"{e.text}\t{e.label}" for e in reviews(count, count)]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines, ""]))
    return folder


def output_of(capsys: pytest.CaptureFixture[str], folder: Path, line: str, status: int = 0) -> str:
    """Run a command with `--quiet`, and return what it writes to the error stream."""
    capsys.readouterr()
    assert run([*line.format(folder=folder).split(), "--quiet"]) == status
    return capsys.readouterr().err


@pytest.mark.full
def test_quiet_leaves_the_result_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pretrain = "pretrain {folder}/tiny.toml --data {folder}/text --out {folder}/run"
    assert output_of(capsys, folder, pretrain) == ""
    assert output_of(capsys, folder, "resume {folder}/run") == ""
    assert output_of(capsys, folder, f"{pretrain}2 --json") == ""
    tune = (
        "tune {folder}/run --train {folder}/train.tsv --dev {folder}/dev.tsv --epochs 1 --seeds 1"
    )
    assert output_of(capsys, folder, f"{tune} --json") == ""
    assert output_of(capsys, folder, "evaluate {folder}/run --json") == ""
    assert (
        output_of(capsys, folder, "prepare {folder}/text --out {folder}/shards --kind char") == ""
    )
    assert (
        output_of(capsys, folder, "tokenizer train {folder}/text --out {folder}/t --kind char")
        == ""
    )
    assert output_of(capsys, folder, "check {folder}/tiny.toml --data {folder}/text") == ""
    assert output_of(capsys, folder, "probe {folder}/run gradient_reach --json") == ""
    assert output_of(capsys, folder, "score {folder}/run --file {folder}/text/0.txt --json") == ""


def test_quiet_leaves_errors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "pretrain {folder}/tiny.toml --data {folder}/nowhere --out {folder}/never"
    assert "nowhere" in output_of(capsys, folder, line, status=2)
