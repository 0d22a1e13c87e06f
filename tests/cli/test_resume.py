"""`foreword resume`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foreword.cli.main import run
from foreword.disk import atomic, stored
from foreword.runs.run_folder import open_run
from foreword.train import checkpoint
from tests.cli.conftest import Refused
from tests.train import runs


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run that died after its checkpoints of steps 3 and 6."""
    text = runs.write_text(tmp_path / "text")
    made = runs.recipe(checkpoints=4, evaluations=1)
    folder = runs.begin(made, text, tmp_path / "run")
    runs.die_at(folder, 8)
    return folder


def test_resume_continues_from_the_last_checkpoint(
    stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["resume", str(stopped), "--json"]) == 0
    captured = capsys.readouterr()
    assert "resuming from step 6" in captured.err
    printed = json.loads(captured.out)
    assert printed["done"] is True
    assert printed["last"]["train"]["step"] == 12


@pytest.mark.full
def test_resume_sets_another_learning_rate(
    stopped: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    assert "to change anything else, start a new run" in refused(
        "resume", str(stopped), "--set", "model.layers=3"
    )
    assert run(["resume", str(stopped), "--set", "optimizer.lr=1e-7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["last"]["train"]["lr"] <= 1e-7
    assert run(["resume", str(stopped)]) == 0
    assert "from step 12, after which nothing of the budget is left" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_named_and_the_previous_one_used(
    stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = checkpoint.all_in(stopped)[-1]
    weights = newest / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    assert run(["resume", str(stopped)]) == 0
    error = capsys.readouterr().err
    assert (
        f"{newest}: damaged: weights.safetensors is missing or cut short; the one before" in error
    )
    assert "resuming from step 3" in error


@pytest.mark.full
def test_a_run_with_only_damaged_checkpoints_is_refused(
    stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in checkpoint.all_in(stopped):
        (folder / "weights.safetensors").unlink()
    assert run(["resume", str(stopped)]) == 2
    error = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("foreword: ") for line in error) == 1
    what = "damaged: weights.safetensors is missing or cut short"
    assert error[-1].endswith(f"{what}; restore a copy of it, or make it again")


def test_checkpoints_of_another_version_are_refused(stopped: Path, refused: Refused) -> None:
    for folder in checkpoint.all_in(stopped):
        manifest = stored.read(folder / "manifest.json")
        stored.write(folder / "manifest.json", manifest | {"foreword_checkpoint": 9})
    assert "version 9; this Foreword reads version 1" in refused("resume", str(stopped))


def test_a_run_in_use_is_refused(stopped: Path, refused: Refused) -> None:
    before = {path: path.stat().st_mtime_ns for path in stopped.rglob("*")}
    with atomic.locked(stopped):
        for more in ([], ["--set", "optimizer.lr=1e-7"]):
            assert f"{stopped}: another process is writing here" in refused(
                "resume", str(stopped), *more
            )
        assert checkpoint.read_state(open_run(stopped).folder)["step"] == 6, "who only reads may"
    del before[stopped / atomic.LOCK]
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_folder_without_a_run_is_refused(tmp_path: Path, refused: Refused) -> None:
    assert "not a run folder (no recipe.toml)" in refused("resume", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_run_stopped_before_it_was_saved_says_so(tmp_path: Path, refused: Refused) -> None:
    folder = runs.begin(runs.recipe(), runs.write_text(tmp_path / "text"), tmp_path / "run")
    (folder / "recipe.toml").unlink()
    assert "stopped here before it was saved; begin it again" in refused("resume", str(folder))
    (folder / "checkpoints" / "step-00000001").mkdir(parents=True)
    assert "before it was saved" not in refused("resume", str(folder))
