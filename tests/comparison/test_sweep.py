"""A sweep: short runs choose settings for each cell before its seeds."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from foreword.cli.main import run as command
from foreword.comparison import sweep
from foreword.comparison.grid import load_grid
from foreword.comparison.results import gather
from foreword.comparison.sweep import Trial
from foreword.comparison.tables import notes, tables
from foreword.data.prepared_text import PreparedText
from foreword.disk import stored
from foreword.errors import TrainingStoppedError, UserError
from foreword.runs.run import train_run
from foreword.runs.run_folder import read_recipe
from foreword.train.embedding_init import cooccurrence
from foreword.vectors.cooccurrence import learn_vectors
from tests.comparison import grids
from tests.comparison.grids import CAUSAL, MASKED, Quiet
from tests.train import runs

RATES = [1e-4, 1e-2, 10.0]  # the last is far too high
SWEEP = {"optimizer": {"lr": RATES}}
MORE: dict[str, Any] = {
    "sweep": SWEEP,
    "sweep_share": 0.5,
    "tasks": [],
    "budget": {"unit": "steps", "amount": 8},
    "cells": [MASKED, {**CAUSAL, "sweep": False}],
}
TRIALS = [f"masked, sweep: lr {rate:g}" for rate in RATES]
RUNS = ["masked, seed 1: pretraining", "decoder, seed 1: pretraining"]

WORD_VECTORS: dict[str, Any] = {
    **MORE,
    "set": {"model": {"d_model": 8}, "train": {"embedding_init": "cooccurrence"}},
    "sweep": {"optimizer": {"lr": RATES[:2]}},
    "budget": {"unit": "flops", "amount": 4e7},
    "cells": [CAUSAL],
}


def begun(folder: Path, out: Path, **more: Any) -> list[str]:
    """Run the grid and return the jobs that it ran."""
    reporter = Quiet()
    assert grids.compare(folder, out, reporter, **{**MORE, **more}).failures == []
    return reporter.begun


@pytest.fixture(scope="module")
def swept(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished comparison with a sweep."""
    out = tmp_path_factory.mktemp("swept") / "out"
    assert begun(folder, out) == [*TRIALS, *RUNS]
    return out


def test_all_combinations_are_tried() -> None:
    tried = sweep.combinations({"optimizer": {"lr": [1, 2]}, "train.batch": [8, 16, 32]})
    assert len(tried) == 6
    assert tried[1] == {"optimizer.lr": 1, "train.batch": 16}
    assert sweep.as_table(tried[1]) == {"optimizer": {"lr": 1}, "train": {"batch": 16}}
    assert sweep.describe(tried[1]) == "lr 1, batch 16"
    assert sweep.describe({"model.dropout": 0.1, "x.dropout": 0.2}).startswith("model.dropout 0.1")
    assert sweep.combinations({}) == []


def test_an_edge_is_the_lowest_or_highest_of_three_values() -> None:
    def trials(*losses: float | None) -> list[Trial]:
        return [Trial("x", {"lr": 10.0**n}, loss, 1, 1, 1.0) for n, loss in enumerate(losses)]

    assert sweep.settings_at_edge(trials(1.0, 2.0, 3.0)) == ["lr 1 (lowest)"]
    assert sweep.settings_at_edge(trials(3.0, 2.0, 1.0)) == ["lr 100 (highest)"]
    assert sweep.settings_at_edge(trials(2.0, 1.0, None)) == []
    assert sweep.settings_at_edge(trials(2.0, 1.0)) == []
    assert sweep.settings_at_edge(trials(None, None, None)) == []


def test_the_seeds_have_the_best_values_and_cells_without_a_sweep_their_own(swept: Path) -> None:
    assert read_recipe(swept / "runs" / "masked-1").optimizer.lr == 1e-2
    assert (
        read_recipe(swept / "runs" / "decoder-1").optimizer.lr
        == runs.recipe("decoder").optimizer.lr
    )


def test_trials_are_short_differ_in_seed_and_leave_the_held_out_text_alone(swept: Path) -> None:
    content = [stored.read(file) for file in (swept / "sweeps").glob("*.json")]
    assert len(content) == 3
    for trial in content:
        train = trial["key"]["recipe"]["train"]
        assert (train["seed"], train["steps"]) == (0, 4)
    (folder,) = (swept / "data").glob("validation-*")
    validation = PreparedText.load(folder)
    assert {trial["key"]["data"] for trial in content} == {validation.fingerprint}
    shards = PreparedText.load(swept / "data" / "shards-word")
    sizes = [s.tokens_total for s in (validation.train, validation.heldout)]
    assert sum(sizes) == shards.train.tokens_total
    assert not [path for path in (swept / "sweeps").iterdir() if path.is_dir()]


@pytest.mark.full
def test_a_finished_sweep_is_not_repeated_and_a_changed_one_in_part(
    folder: Path, swept: Path
) -> None:
    assert begun(folder, swept) == []
    more = {"sweep": {"optimizer": {"lr": [1e-2, 3e-2]}}, "cells": [MASKED]}
    jobs = begun(folder, swept, **more)
    assert jobs[0] == "masked, sweep: lr 0.03"
    assert set(jobs[1:]) <= {RUNS[0]}  # anew if the new value is the best
    assert begun(folder, swept, cells=[{**MASKED, "sweep": {"optimizer": {"lr": RATES}}}]) == []


@pytest.mark.full
def test_a_sweep_killed_at_any_trial_continues_there(folder: Path, tmp_path: Path) -> None:
    jobs, begins = [*TRIALS, *RUNS], 0
    for ends in (1, 3):

        def die(job: str, last: str = jobs[ends]) -> None:
            if job == last:
                raise runs.Killed

        reporter = Quiet(die)
        with pytest.raises(runs.Killed):
            grids.compare(folder, tmp_path / "out", reporter, **MORE)
        assert reporter.begun == jobs[begins : ends + 1]
        begins = ends
    assert begun(folder, tmp_path / "out") == jobs[begins:]


@pytest.mark.full
def test_a_trial_killed_after_its_training_is_not_trained_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train_and_die(*args: Any) -> bool:
        train_run(*args)
        raise runs.Killed

    monkeypatch.setattr("foreword.runs.run.train_run", train_and_die)
    with pytest.raises(runs.Killed):
        grids.compare(folder, tmp_path / "out", **MORE)
    monkeypatch.undo()
    (run,) = (path for path in (tmp_path / "out" / "sweeps").iterdir() if path.is_dir())
    before = (run / "metrics.jsonl").read_bytes()
    seen = []

    def spy(run: Path, *rest: Any) -> bool:
        done = train_run(run, *rest)
        seen.append((run / "metrics.jsonl").read_bytes())
        return done

    monkeypatch.setattr("foreword.runs.run.train_run", spy)
    assert begun(folder, tmp_path / "out") == [*TRIALS, *RUNS]
    assert seen[0] == before
    assert not run.exists()


@pytest.fixture
def diverging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training at a rate of 8 and more diverges."""

    def diverge(run: Path, *rest: Any) -> bool:
        if read_recipe(run).optimizer.lr >= 8.0:
            raise TrainingStoppedError("step 3: the loss is not finite")
        return train_run(run, *rest)

    monkeypatch.setattr("foreword.runs.run.train_run", diverge)


@pytest.mark.full
@pytest.mark.usefixtures("diverging")
def test_a_trial_that_diverges_is_the_worst_and_fails_nothing(folder: Path, tmp_path: Path) -> None:
    swept = {"optimizer": {"lr": [1e-3, 10.0]}, "train": {"clip": [0.0, 1.0]}}
    comparison = grids.compare(
        folder, tmp_path / "out", **{**MORE, "sweep": swept, "cells": [MASKED]}
    )
    assert comparison.failures == []
    results = gather(comparison)
    assert [trial.loss is None for trial in results.trials] == [False, False, True, True]
    (table,) = (table for table in tables(results) if table.title == "Sweep")
    assert table.rows[0][5:] == ("4", "2")
    assert json.dumps(results.as_json(), allow_nan=False)


@pytest.mark.full
@pytest.mark.usefixtures("diverging")
def test_a_cell_whose_sweep_all_diverges_fails_alone(folder: Path, tmp_path: Path) -> None:
    swept = {"optimizer": {"beta2": [0.9, 0.99]}}
    masked = {**MASKED, "set": {"optimizer": {"lr": 10.0}}, "sweep": swept}
    cells = [masked, {**CAUSAL, "sweep": False}]
    comparison = grids.compare(folder, tmp_path / "out", **{**MORE, "cells": cells})
    assert [(str(f.job), f.error, f.is_fault) for f in comparison.failures] == [
        (RUNS[0], "every run of its sweep diverged; give the cell other values to try", False)
    ]
    assert {run.cell for run in gather(comparison).runs} == {"decoder"}


ROUNDS: dict[str, Any] = {
    "sweep": {"optimizer": {"lr": [1e-4, 3e-4, 1e-2, 10.0]}},
    "sweep_share": 0.25,
    "sweep_rounds": 3,
    "cells": [MASKED],
}
HALVED = [
    "masked, sweep: lr 0.0001", "masked, sweep: lr 0.0003", "masked, sweep: lr 0.01",
    "masked, sweep: lr 10", "masked, sweep: round 2, rank 1 of round 1",
    "masked, sweep: round 2, rank 2 of round 1", "masked, seed 1: pretraining",
]  # fmt: skip


@pytest.mark.full
def test_each_round_tries_the_better_half_again_for_twice_the_budget(
    folder: Path, tmp_path: Path
) -> None:
    assert begun(folder, tmp_path / "out", **ROUNDS) == HALVED  # of two, none is left out
    results = gather(grids.compare(folder, tmp_path / "out", **{**MORE, **ROUNDS}))
    assert [(trial.round, trial.steps) for trial in results.trials] == [(1, 2)] * 4 + [(2, 4)] * 2
    first, second = results.trials[:4], results.trials[4:]
    losses = sorted((t.loss, t.values["optimizer.lr"]) for t in first if t.loss is not None)
    assert [t.values["optimizer.lr"] for t in second] == [rate for _, rate in losses[:2]]
    best = min(second, key=lambda trial: trial.loss or 0.0)
    rate = best.values["optimizer.lr"]
    assert read_recipe(tmp_path / "out" / "runs" / "masked-1").optimizer.lr == rate
    (table,) = (table for table in tables(results) if table.title == "Sweep")
    assert table.rows[0][1:3] == (f"lr {rate:g}", f"{best.loss:.3f}")
    assert table.rows[0][5] == "4 + 2"
    assert any("25% of the budget, and the better half again" in note for note in notes(results))
    assert begun(folder, tmp_path / "out", **ROUNDS) == []


def test_the_last_round_decides_though_a_short_trial_was_better() -> None:
    short = [Trial("x", {"lr": n}, loss, 1, 1, 1.0) for n, loss in enumerate([1.0, 1.1, 1.2])]
    long = [Trial("x", {"lr": n}, loss, 2, 2, 2.0, round=2) for n, loss in enumerate([1.3, 0.9])]
    best = sweep.best_of([*short, *long])
    assert best is not None and best.values == {"lr": 1}
    assert sweep.settings_at_edge([*short, *long]) == []
    assert sweep.best_of([*short, Trial("x", {"lr": 0}, None, 2, 2, 2.0, round=2)]) is None


@pytest.mark.full
def test_a_sweep_killed_between_rounds_continues(folder: Path, tmp_path: Path) -> None:
    def die(job: str) -> None:
        if job == HALVED[5]:
            raise runs.Killed

    with pytest.raises(runs.Killed):
        grids.compare(folder, tmp_path / "out", Quiet(die), **{**MORE, **ROUNDS})
    assert begun(folder, tmp_path / "out", **ROUNDS) == HALVED[5:]


@pytest.mark.full
@pytest.mark.usefixtures("diverging")
def test_a_later_round_tries_only_what_did_not_diverge(folder: Path, tmp_path: Path) -> None:
    rates = {"optimizer": {"lr": [10.0, 1e-2, 9.0, 8.0]}}
    jobs = begun(folder, tmp_path / "out", **{**ROUNDS, "sweep": rates})
    assert jobs[4:] == [HALVED[4], HALVED[6]]


@pytest.mark.full
def test_results_name_every_value_with_its_loss(folder: Path, swept: Path) -> None:
    results = gather(grids.compare(folder, swept, **MORE))
    (table,) = (table for table in tables(results) if table.title == "Sweep")
    assert [row[:2] for row in table.rows] == [("masked", "lr 0.01")]
    assert any("validation part" in note for note in notes(results))
    assert (
        command(["compare", grids.write_grid(folder, **MORE), "--out", str(swept), "--quiet"]) == 0
    )
    document = json.loads((swept / "results.json").read_text(encoding="utf-8"))
    assert [trial["values"] for trial in document["trials"]] == [{"optimizer.lr": r} for r in RATES]
    assert document["cells"][0]["best"] == {"optimizer.lr": 1e-2}
    assert "best" not in document["cells"][1]
    with (swept / "results.csv").open(encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["task"] == "sweep"]
    assert [line["start"] for line in lines] == [f"optimizer.lr={rate!r}" for rate in RATES]
    assert "| masked | lr 0.01 | " in (swept / "table.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_best_value_at_an_edge_is_noted(folder: Path, swept: Path) -> None:
    more = {"sweep": {"optimizer": {"lr": [1e-5, 1e-4, 1e-2]}}, "cells": [MASKED]}
    results = gather(grids.compare(folder, swept, **{**MORE, **more}))
    assert [n for n in notes(results) if n.startswith("At the edge") and "lr 0.01 (highest)" in n]


@pytest.mark.product(few=5)
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"sweep": {"objective": {"rate": [0.1, 0.2]}}}, "sweep.objective.rate: cannot be swept"),
        ({"sweep": {"train": {"seed": [1, 2]}}}, "sweep.train.seed: is the same for all"),
        ({"sweep": {"optimizer": {"lr": 1e-3}}}, "sweep.optimizer.lr: expected a list of values"),
        ({"sweep": {"optimizer": {"lr": [1e-3]}}}, "sweep.optimizer.lr: expected two or more"),
        ({"sweep": [1]}, "sweep: expected a table of settings"),
        (
            {"sweep": {"model": {f"set_{n}": [1, 2] for n in range(30)}}},
            "sweep: 1,073,741,824 combinations of values; at most 10,000 are trained",
        ),
        ({"sweep_share": 1}, "sweep_share: must be a number above 0 and below 1"),
        ({"sweep_rounds": 2, "sweep_share": 0.6}, "sweep_rounds: round 2 would train for 1.2 of"),
        (
            {"sweep_rounds": 2000, "sweep_share": 0.6},
            "sweep_rounds: round 2 would train for 1.2 of",
        ),
        ({"sweep_rounds": 0}, "sweep_rounds: must be a whole number from 1 to"),
        ({"cells": [{**MASKED, "sweep": True}]}, "cells[0].sweep: expected a table"),
        (
            {"sweep": {"optimizer": {"momentum": [0.1, 0.2]}}},
            "cell 'masked': optimizer.momentum: kind 'adamw' has no such setting",
        ),
        (
            {"sweep": {"optimizer": {"momentum": [0.1, 0.2]}}},
            "; give cell 'masked' a sweep of its own, or sweep = false",
        ),
        ({"sweep": {"optimizer": {"lr": [1e-3, "x"]}}}, "optimizer.lr: expected a number, got 'x'"),
        ({"cells": [{"recipe": "ngram_2"}]}, "cell 'ngram_2': sweep: ngram learns from the whole"),
    ],
)
def test_a_mistake_in_a_sweep_is_refused_in_one_line(
    folder: Path,
    tmp_path: Path,
    more: dict[str, Any],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    grid = grids.write_grid(folder, **{**MORE, "cells": [MASKED], **more})
    assert command(["compare", grid, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


@pytest.mark.full
def test_a_dry_run_counts_the_sweep(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = grids.write_grid(folder, **{**MORE, "sweep": {"train": {"batch": [4, 8]}}})
    assert command(["compare", grid, "--out", str(tmp_path / "out"), "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    masked, decoder = document["cells"]
    assert masked["sweep_seconds"] == pytest.approx(0.5 * (1 + 2) * masked["pretraining_seconds"])
    assert decoder["sweep_seconds"] == 0
    grid = grids.write_grid(folder, **{**MORE, **ROUNDS})
    assert command(["compare", grid, "--out", str(tmp_path / "out"), "--dry-run", "--json"]) == 0
    (rounds,) = json.loads(capsys.readouterr().out)["cells"]
    expected = (4 * 0.25 + 2 * 0.5) * rounds["pretraining_seconds"]
    assert rounds["sweep_seconds"] == pytest.approx(expected)
    each = [c["sweep_seconds"] + c["pretraining_seconds"] for c in document["cells"]]
    assert document["seconds"] == pytest.approx(sum(each))


@pytest.mark.full
def test_trials_share_the_first_embeddings_and_no_budget_pays_for_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []

    def noted(*arguments: Any) -> Any:
        counted.append(learn_vectors(*arguments))
        return counted[-1]

    monkeypatch.setattr(cooccurrence, "learn_vectors", noted)
    shared = grids.compare(folder, tmp_path / "out", **{**WORD_VECTORS, "sweep_share": 0.01})
    assert len(counted) == 2  # once for the trials, once for the run
    assert counted[0].flops > 0.01 * WORD_VECTORS["budget"]["amount"]
    assert [trial.steps for trial in gather(shared).trials] == [1, 1]
    assert not shared.failures


def test_first_embeddings_that_take_all_of_the_budget_are_refused_before_the_first_piece(
    folder: Path, tmp_path: Path
) -> None:
    less = {**WORD_VECTORS, "budget": {"unit": "flops", "amount": 4e5}}
    with pytest.raises(UserError, match=r"'decoder': train\.embedding_init: .* all of the budget"):
        grids.compare(folder, tmp_path / "out", **less)
    assert not (tmp_path / "out" / "sweeps").exists()


@pytest.mark.full
def test_a_dry_run_says_what_first_embeddings_take(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = grids.write_grid(folder, **WORD_VECTORS)
    assert command(["compare", grid, "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    output = " ".join(capsys.readouterr().err.split())
    assert "at most this share of a pretraining: decoder " in output
    assert "the trials of a sweep share theirs" in output


def test_text_too_short_for_a_validation_row_is_one_line(folder: Path, tmp_path: Path) -> None:
    long = {**MASKED, "set": {"packing": {"length": 1000}}}
    comparison = grids.compare(
        folder, tmp_path / "out", **{**MORE, "cells": [long], "tasks": [grids.TASK]}
    )
    assert "a row needs 1,000; give more text, or sweep = false" in comparison.failures[0].error


def test_the_shipped_grids_sweep_every_cell_that_is_trained_in_steps() -> None:
    for name in ("objectives", "ladder"):
        grid = load_grid(name, ["text"], Path("tasks"))
        for cell in grid.cells:
            trials = grid.trials(cell)
            assert len(trials) == (0 if grid.recipe(cell, 1).model.trains_offline else 6)
            assert all(grid.trial_recipe(cell, values) for values in trials)
