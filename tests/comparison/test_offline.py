"""Cells with offline training, next to one that is trained in steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foreword.cli.main import run as command
from foreword.comparison import tables
from foreword.comparison.grid import load_grid
from foreword.comparison.results import gather
from foreword.comparison.run import Comparison
from foreword.train import checkpoint
from tests.comparison import grids
from tests.comparison.grids import CAUSAL, Quiet
from tests.runs import test_offline as offline

EPOCHS = {"unit": "epochs", "amount": 2}


def write(folder: Path, **more: Any) -> str:
    """Write a grid with a cell of each way of training."""
    for kind in offline.MODELS:
        (folder / f"{kind}.toml").write_text(offline.recipe(kind).dumps(), encoding="utf-8")
    cells = [{"recipe": f"{kind}.toml"} for kind in offline.MODELS]
    made = {"cells": [CAUSAL, *cells], "tasks": [], "budget": EPOCHS, "set": None, **more}
    return grids.write_grid(folder, **made)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return grids.write_files(tmp_path / "grid")


def forecast(grid: str, out: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    capsys.readouterr()
    status = command(["compare", grid, "--out", str(out), "--dry-run", "--json"])
    return status, json.loads(capsys.readouterr().out)["cells"]


@pytest.mark.full
def test_offline_training_has_a_note_and_no_forecast(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid, out = write(folder), tmp_path / "out"
    status, (steps, counts, vectors) = forecast(grid, out, capsys)
    assert status == 0
    assert not steps["note"] and steps["flops_per_token"] > 0
    for cell, epochs in ((counts, 1), (vectors, 2)):
        assert (cell["note"], cell["error"]) == ("offline, no forecast", "")
        assert cell["epochs"] == epochs and cell["tokens"] == epochs * counts["tokens"]
    assert command(["compare", grid, "--out", str(out), "--dry-run"]) == 0
    captured = capsys.readouterr()
    assert "offline, no forecast" in captured.out and "3 jobs, at least" in captured.err


@pytest.mark.full
def test_the_forecast_names_a_budget_that_a_cell_does_not_support(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = write(folder, budget={"unit": "steps", "amount": 3})
    status, cells = forecast(grid, tmp_path / "out", capsys)
    assert status == 2
    assert [bool(cell["error"]) for cell in cells] == [False, False, True]
    assert "use --epochs 5 (train.epochs = 5) alone" in cells[2]["error"]


def test_fine_tuning_is_not_applicable_to_a_count_based_cell(folder: Path, tmp_path: Path) -> None:
    (folder / "ngram.toml").write_text(offline.recipe("ngram").dumps(), encoding="utf-8")
    grid = load_grid(write(folder, cells=[{"recipe": "ngram.toml"}], tasks=[grids.TASK]))
    comparison = Comparison(grid, tmp_path / "out", Quiet())
    comparison.prepare()
    assert comparison.run() and not comparison.failures
    made = {table.title: table.rows for table in tables.tables(gather(comparison))}
    assert made["Fine-tuning"][0] == ("ngram", "not applicable", "not applicable")
    assert not [note for note in tables.notes(gather(comparison)) if "not done" in note]


@pytest.mark.full
def test_a_damaged_offline_cell_is_trained_again(folder: Path, tmp_path: Path) -> None:
    cells = [{"recipe": f"{kind}.toml"} for kind in offline.MODELS]
    grid, out = load_grid(write(folder, cells=cells)), tmp_path / "out"
    comparison = Comparison(grid, out, Quiet())
    comparison.prepare()
    assert comparison.run() and not comparison.failures
    runs = gather(comparison).runs
    assert [run.steps for run in runs] == [1, 2]
    for run in runs:
        (made,) = checkpoint.all_in(Path(run.run))
        (made / offline.FILES[run.cell]).write_bytes(b"")
    reporter = Quiet()
    again = Comparison(grid, out, reporter)
    again.prepare()
    assert again.run() and not again.failures
    assert reporter.begun == [f"{kind}, seed 1: pretraining" for kind in offline.MODELS]
    assert len(gather(again).runs) == 2
