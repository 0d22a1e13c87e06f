"""Where a run came from."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from foreword.cli import main
from foreword.disk import atomic
from foreword.runs import provenance
from foreword.runs.provenance import command, make_provenance
from foreword.runs.run_folder import open_run
from tests.train import runs


def test_the_recorded_command_can_be_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["pretrain", "gpt2_mini", "--data", "my texts/*.txt", "--set", 'packing.bos=""']
    monkeypatch.setattr(sys, "argv", ["foreword", *words])
    assert shlex.split(command()) == ["foreword", *words]
    assert make_provenance()["command"] == command()


def test_a_run_begun_under_old_names_of_settings_resumes(tmp_path: Path) -> None:
    run = runs.begin(runs.recipe(), runs.write_text(tmp_path / "text"), tmp_path / "run")
    text = (run / "recipe.toml").read_text(encoding="utf-8")
    text = text.replace("kept_checkpoints", "keep").replace("threads", "workers")
    text = text.replace('[train.embedding_init]\nkind = "random"', "word_vectors = 0")
    (run / "recipe.toml").write_text(text, encoding="utf-8")
    state, digest = provenance.read_state(run), atomic.checksum(run / "recipe.toml")
    provenance.write_state(run, {**state, "format": 3, "recipes": [digest]})
    assert runs.train_run(run)
    assert open_run(run).recipe.train == replace(runs.recipe().train, compile="off")


def test_a_run_of_another_format_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs.begin(runs.recipe(), runs.write_text(tmp_path / "text"), tmp_path / "run")
    state = provenance.read_state(run)
    del state["format"]  # as runs were before there was one
    provenance.write_state(run, state)
    assert main.run(["resume", str(run)]) == 2
    error = capsys.readouterr().err
    assert f"{run}: a run folder of format 1; this Foreword reads formats 3 and 4" in error
    assert error.count("\n") == 1
