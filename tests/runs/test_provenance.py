"""Where a run came from."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from foreword.cli import main
from foreword.runs import provenance
from foreword.runs.provenance import command, make_provenance
from tests.train import runs


def test_the_recorded_command_can_be_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["pretrain", "gpt2_mini", "--data", "my texts/*.txt", "--set", 'packing.bos=""']
    monkeypatch.setattr(sys, "argv", ["foreword", *words])
    assert shlex.split(command()) == ["foreword", *words]
    assert make_provenance()["command"] == command()


def test_a_run_of_another_format_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs.begin(runs.recipe(), runs.write_text(tmp_path / "text"), tmp_path / "run")
    state = provenance.read_state(run)
    del state["format"]  # as runs were before there was one
    provenance.write_state(run, state)
    assert main.run(["resume", str(run)]) == 2
    error = capsys.readouterr().err
    assert f"{run}: a run folder of format 1; this Foreword reads format 3" in error
    assert error.count("\n") == 1
