"""Ladders: budgets that branch off one training of each size, known runs, and their laws."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from foreword.cli.main import run as main
from foreword.comparison import ladder
from foreword.comparison.grid import load_grid
from foreword.comparison.run import Comparison
from foreword.planning import estimate, forecast
from foreword.planning.laws import Expectation
from foreword.planning.request import RunRequest
from foreword.runs.run_folder import Run
from foreword.runs.setup import TrainingSetup
from foreword.train import checkpoint
from foreword.train.budget import Budget
from tests.comparison import grids

LESS, MORE = 4e7, 1.2e8
SETS: dict[str, Any] = {
    "tokenizer": {"vocab": 134},
    "schedule": {"kind": "wsd", "warmup": {"share": 0.1}, "decay": 0.2},
    "train": {"evaluations": 1, "checkpoints": 5, "kept_checkpoints": 2, "seed": 1},
}
CELLS = [
    {"label": str(width), "recipe": "decoder.toml", "set": {"model": {"d_model": width}}}
    for width in (8, 16)
]

GOOD = ", ".join(f'"{name}": "1"' for name in ladder.NEEDED if name != "loss")
LATER = {"recipe": "decoder.toml", "budget": {"unit": "flops", "amount": 2e9}}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sizes have few steps."""
    monkeypatch.setattr(ladder, "LEAST_STEPS", 1)


def write(folder: Path, **more: Any) -> str:
    return grids.write_grid(folder, budget=None, tasks=None, set=SETS, cells=CELLS, **more)


def run(grid: str, out: Path, *more: str) -> int:
    flops = f"{LESS},{MORE}"
    return main(
        ["scale", "run", grid, "--out", str(out), "--flops", flops, "--resamples", "20", *more]
    )


def test_a_ladder_branches_its_budgets_off_one_training(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def expected(request: RunRequest) -> Expectation:
        return Expectation("bits per byte", "", request.recipe.train.flops)

    monkeypatch.setattr(forecast, "forecast_of", expected)
    grid, out = write(folder), tmp_path / "out"
    assert run(grid, out) == 0, capsys.readouterr().err
    with (out / "runs.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    names = [(row["size"], round(float(row["flops"]) / LESS)) for row in rows]
    assert names == [("8", 1), ("8", 3), ("16", 1), ("16", 3)]
    assert all(int(row["parameters_without_embeddings"]) < int(row["parameters"]) for row in rows)
    assert {row["unit"] for row in rows} == {"bits per byte"}
    (unigram,) = {float(row["unigram"]) for row in rows}
    first = float(rows[0]["loss"])
    assert first < 2 * unigram and unigram < 8
    less, more = (next((out / "runs").glob(f"8-{name}-1/")) for name in ("4e7", "1-2e8"))
    begun = Run(more).noted["branched"]
    noted = [Run(one).noted["forecast"] for one in (less, more)]  # each before its own training
    assert [one["value"] for one in noted] == [LESS, MORE]
    assert noted[0]["result"] != noted[1]["result"]
    assert begun["run"] == str(less.resolve())
    decayed = checkpoint.read_state(checkpoint.newest(less))["spent"]["steps"]
    assert int(begun["checkpoint"][5:]) <= decayed  # from before its decay
    # The losses before the decay are curves, of which the longest of each size is read.
    losses, _ = ladder.measurements_of([out], "train")
    assert {row["run"] for row in losses} == {str(out / "runs" / f"{n}-1-2e8-1") for n in (8, 16)}
    assert max(row["checkpoint"] for row in losses) <= 0.81 * max(int(r["steps"]) for r in rows)
    assert main(["scale", "plateaus", str(out)]) == 2
    assert "no heldout loss at a constant learning rate" in capsys.readouterr().err
    # The same command does nothing again; known runs are not run elsewhere either.
    at = {file: file.stat().st_mtime_ns for file in (out / "runs").rglob("state.json")}
    assert run(grid, out) == 0
    assert at == {file: file.stat().st_mtime_ns for file in (out / "runs").rglob("state.json")}
    capsys.readouterr()
    before = (out / "runs.csv").read_text()
    measured, measure = [], estimate._measured

    def measuring(setup: TrainingSetup) -> Any:
        measured.append(setup.recipe.model)
        return measure(setup)

    monkeypatch.setattr(estimate, "_measured", measuring)
    assert run(grid, out, "--rates", "0.5,1,2", "--dry-run") == 0
    assert len(measured) == len(set(measured)) == 2  # each size once, for all rates and budgets
    assert (out / "runs.csv").read_text() == before
    assert run("scale_decoder", out, "--data", str(folder / "text")) == 2
    assert f"holds the ladder of {Path(grid).stem}; choose another" in capsys.readouterr().err
    known = ["--known", str(out / "runs.csv")]
    assert run(grid, tmp_path / "known", *known, "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 4
    assert not (tmp_path / "known" / "runs").exists()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"size": "8"}', "has no 'width'"),
        (f'{{{GOOD}, "loss": "nan"}}', "loss: must be above 0"),
        (f'{{{GOOD}, "loss": "low"}}', "loss: must be above 0"),
    ],
)
def test_known_runs_are_checked(
    row: str, message: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "k.jsonl").write_text(f'{{{GOOD}, "loss": "4"}}\n{row}\n')
    assert run(write(folder), tmp_path / "o", "--known", str(tmp_path / "k.jsonl")) == 2
    error = capsys.readouterr().err
    assert f"k.jsonl:2: {message}" in error and error.count("\n") == 1


def test_what_goes_on_from_a_failed_run_is_left_out(folder: Path, tmp_path: Path) -> None:
    grid = load_grid(write(folder), budget=Budget("flops", 1.0))
    made, _ = ladder.ladder(grid, [LESS, MORE, 2 * MORE])
    assert made is not None
    comparison = Comparison(made, tmp_path / "out", grids.Quiet())
    first, second, third = (job for job in comparison.jobs() if job.cell.name.startswith("8-"))
    with comparison.recording_failure(first):
        raise MemoryError
    assert comparison.is_left_out(second) and comparison.is_left_out(third)
    assert not any(comparison.is_left_out(job) for job in comparison.jobs()[3:])


@pytest.mark.parametrize(
    ("flops", "sets", "message"),
    [
        ("1e9,1e9", {}, "several budgets are needed"),
        ("1e3,1e9", {}, "the smallest size has 1 steps from 1."),
        ("1e9,x", {}, "expected numbers"),
        ("1e9,-1", {}, "must be above 0"),
        ("1e9,2e9", {"schedule": {"kind": "linear"}}, "cell '8': schedule: a ladder branches"),
    ],
)
def test_bad_ladders_are_one_line(
    flops: str,
    sets: Any,
    message: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sets = {**SETS, **sets}
    grid = grids.write_grid(folder, budget=None, tasks=None, set=sets, cells=CELLS)
    assert main(["scale", "run", grid, "--out", str(tmp_path / "o"), f"--flops={flops}"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([CELLS[0], {**LATER, "after": "9"}], "no cell above is '9'"),
        ([CELLS[0], {**LATER, "after": "8", "recipe": "encoder.toml"}], "recipe: must be that of"),
        ([CELLS[0], {"recipe": "decoder.toml", "after": "8"}], "give only a larger budget"),
        ([{**LATER, "budget": {"unit": "steps", "amount": 9}}], "budget: give it in flops"),
    ],
)  # fmt: skip
def test_cells_that_go_on_from_another_are_checked(
    cells: Any, message: str, folder: Path, tmp_path: Path
) -> None:
    budget = {"unit": "flops", "amount": 1e9}
    with pytest.raises(ladder.UserError, match=message):
        load_grid(grids.write_grid(folder, budget=budget, tasks=None, set=SETS, cells=cells))


def test_the_checkpoint_before_the_decay_outlives_evaluations(folder: Path, tmp_path: Path) -> None:
    sets = {**SETS, "train": {**SETS["train"], "evaluations": 12}}
    grid = grids.write_grid(folder, budget=None, tasks=None, set=sets, cells=CELLS[:1])
    assert run(grid, tmp_path / "out") == 0
    with (tmp_path / "out" / "runs.csv").open(newline="") as lines:
        assert len(list(csv.DictReader(lines))) == 2


@pytest.mark.full
def test_rates_are_tried_and_a_rule_is_used(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid, out = write(folder), tmp_path / "out"
    assert run(grid, out, "--rates", "0.1,1,10", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert re.match(r"best rate about .* \(width / 256\)\^", shown["rates"])
    with (out / "rates.csv").open(newline="") as lines:
        tried = list(csv.DictReader(lines))
    assert len(tried) == 2 * 3 * 2 and len({row["lr"] for row in tried}) == 3
    used = {(row["width"], row["lr"]) for row in shown["runs"]}
    assert len(used) == 2  # one rate for each width, at both budgets
    assert "layers beside the points" in (out / "rates.html").read_text()
    # What is known is not tried again, and only runs at the rule's rates are fitted.
    known = tmp_path / "known.csv"
    lines = (out / "rates.csv").read_text() + (out / "runs.csv").read_text().split("\n", 1)[1]
    known.write_text(lines)
    again = tmp_path / "again"
    assert run(grid, again, "--rates", "0.1,1,10", "--known", str(known), "--json") == 0
    assert json.loads(capsys.readouterr().out)["rates"] == shown["rates"]
    assert not (again / "runs").exists()
    rates = sorted(row["lr"] for row in csv.DictReader((again / "runs.csv").open()))
    assert rates == sorted(str(row["lr"]) for row in shown["runs"])


def test_seeds_and_what_a_run_branches_off_are_not_in_its_key(folder: Path) -> None:
    train = SETS["train"] | {"embedding_init": {"kind": "cooccurrence"}}
    path = grids.write_grid(
        folder, budget=None, tasks=None, set=SETS | {"train": train}, cells=CELLS
    )
    grid = load_grid(path, budget=Budget("flops", 1.0))
    keys = set()
    for budgets in ([LESS, MORE], [MORE, 2 * MORE]):
        made, _ = ladder.ladder(grid, budgets)
        assert made is not None
        cell = next(one for one in made.cells if one.budget == Budget("flops", MORE))
        keys |= {ladder.settings_key(made.recipe(cell, seed)) for seed in (1, 2)}
    assert len(keys) == 1


def test_choices_are_trained_and_compared(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow = {"label": "narrow ff", "recipe": "decoder.toml", "set": {"model": {"d_ff": 8}}}
    cells = [*CELLS, narrow]
    grid = grids.write_grid(folder, budget=None, tasks=None, set=SETS, cells=cells)
    command = ["scale", "choices", grid, "--out", str(tmp_path / "o"), "--flops", f"{LESS},{MORE}"]
    assert main([*command, "--json"]) == 0, capsys.readouterr().err
    shown = json.loads(capsys.readouterr().out)
    assert list(shown["budgets"][0]["losses"]) == ["8", "16", "narrow ff"]
    assert -1 <= shown["budgets"][0]["tau"] <= 1 and shown["budgets"][1]["tau"] is None
    page = (tmp_path / "o" / "choices.html").read_text(encoding="utf-8")
    assert "narrow ff" in page and page.count("<figure") == 1
    assert len((tmp_path / "o" / "choices.csv").read_text().splitlines()) == 7


def test_a_cell_goes_on_to_a_larger_budget_alone(folder: Path) -> None:
    cells = [CELLS[0], {**LATER, "label": "more", "after": "8"}]
    budget = {"unit": "flops", "amount": 3e9}
    grid = load_grid(grids.write_grid(folder, budget=budget, tasks=None, set=SETS, cells=cells))
    with pytest.raises(ladder.UserError, match="cell 'more': budget: must be larger"):
        grid.recipe(grid.cells[1], 1)
