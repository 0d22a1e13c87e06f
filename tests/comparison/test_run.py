"""Nothing is done twice, nothing stale is used, and a failure does not stop the rest."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from foreword.cli.main import run as command
from foreword.comparison.grid import Grid, load_grid
from foreword.comparison.jobs import Job
from foreword.comparison.on_pool import run_on_pool
from foreword.comparison.results import gather
from foreword.comparison.run import Comparison
from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.runs import stages
from foreword.runs.run import train_run
from foreword.runs.run_folder import is_finished, read_recipe
from foreword.settings import config
from tests.comparison import grids
from tests.comparison.grids import CAUSAL, MASKED, TASK, Quiet
from tests.train import runs

ALL = [
    "masked, seed 1: pretraining",
    "masked, seed 1: Reviews",
    "masked, seed 1: Reviews from scratch",
    "decoder, seed 1: pretraining",
    "decoder, seed 1: Reviews",
    "decoder, seed 1: Reviews from scratch",
    "Reviews: bag of words",
]


def begun(folder: Path, out: Path, **more: Any) -> list[str]:
    """Run the grid and return the jobs that it ran."""
    reporter = Quiet()
    comparison = grids.compare(folder, out, reporter, **more)
    assert comparison.failures == []
    return reporter.begun


def test_each_cell_is_a_run_folder_and_all_share_their_data(finished: Path) -> None:
    folders = sorted(path.name for path in (finished / "runs").iterdir() if path.is_dir())
    assert folders == ["decoder-1", "masked-1"]
    for name in folders:
        run = finished / "runs" / name
        assert is_finished(run)
        assert read_recipe(run).train.steps == 3
        assert not (run / "shards").exists()
        assert [file.name for file in (run / "evaluations").iterdir()] == [
            "tune-classify-reviews.json"
        ]
    assert sorted(path.name for path in (finished / "data").iterdir() if path.is_dir()) == [
        "shards-word",
        "tokenizer-word",
    ]


@pytest.mark.parametrize(
    ("of_first", "expected"),
    [
        ({"seeds": 2}, [*ALL, ALL[0].replace("seed 1", "seed 2"), ALL[1].replace("1", "2", 1)]),
        ({"measures": []}, [ALL[0], *ALL[3:]]),
        ({"measures": ["Reviews"]}, [*ALL[:2], *ALL[3:]]),
        ({"measures": ["Reviews", "Reviews from scratch"]}, ALL),
    ],
)
def test_a_cell_has_seeds_and_measures_of_its_own(
    folder: Path, tmp_path: Path, of_first: dict[str, Any], expected: list[str]
) -> None:
    grid = load_grid(grids.write_grid(folder, cells=[{**MASKED, **of_first}, CAUSAL]))
    jobs = Comparison(grid, tmp_path / "out", Quiet()).jobs()
    assert sorted(map(str, jobs)) == sorted(expected)


def test_seeds_of_a_cell_may_come_together(folder: Path, tmp_path: Path) -> None:
    grid = load_grid(grids.write_grid(folder, seeds=2, tasks=None, by_cell=True))
    jobs = Comparison(grid, tmp_path / "out", Quiet()).jobs()
    cells = [(job.cell.name, job.seed) for job in jobs]
    assert cells == [(name, seed) for name in ("masked", "decoder") for seed in (1, 2)]


def test_each_tokenizer_has_its_own_shards(folder: Path, tmp_path: Path) -> None:
    other = {"label": "chars", "recipe": "decoder.toml", "set": {"tokenizer": {"kind": "char"}}}
    grid = load_grid(grids.write_grid(folder, cells=[MASKED, CAUSAL, other]))
    for _ in range(2):
        Comparison(grid, tmp_path / "out", Quiet()).prepare()
    made = {path.name for path in (tmp_path / "out" / "data").iterdir() if path.is_dir()}
    assert made == {"shards-word", "tokenizer-word", "shards-char", "tokenizer-char"}


def test_held_out_text_is_prepared_once_for_all_cells(tmp_path: Path) -> None:
    grids.write_files(tmp_path)
    apart = tmp_path / "apart.txt"
    apart.write_text("the cat sat on a red house.\n" * 30, encoding="utf-8")
    fingerprints = set()
    for text in ("the old dog ran.\n" * 30, None):
        grid = load_grid(grids.write_grid(tmp_path, heldout=["apart.txt"]))
        comparison = Comparison(grid, tmp_path / "out", Quiet())
        comparison.prepare()
        shards = comparison.corpora.shards_for(comparison.recipes["masked", 1])
        assert shards.counts["heldout"].documents == 30
        fingerprints.add(shards.folder)
        apart.write_text(text or "", encoding="utf-8")
    assert len(fingerprints) == 2, "made anew for another held-out text"
    more = {"heldout": ["text/0.txt"]}
    with pytest.raises(UserError, match="in both --data and --heldout"):
        Comparison(load_grid(grids.write_grid(tmp_path, **more)), tmp_path / "out", Quiet())


def test_too_little_held_out_text_is_refused_where_the_loss_is_compared(tmp_path: Path) -> None:
    grids.write_files(tmp_path)
    (tmp_path / "short.txt").write_text("the cat sat.\n", encoding="utf-8")
    measured: dict[str, Any] = {"heldout": ["short.txt"], "cells": [CAUSAL]}
    Comparison(load_grid(grids.write_grid(tmp_path, **measured)), tmp_path / "a", Quiet()).prepare()
    grid = load_grid(grids.write_grid(tmp_path, tasks=None, **measured))
    with pytest.raises(UserError, match=r"cell '.*': . tokens of held-out .* --heldout, .*\[set\]"):
        Comparison(grid, tmp_path / "b", Quiet()).prepare()


def test_a_budget_of_less_than_a_step_fails_the_cell_and_its_forecast(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    less = {"budget": {"unit": "flops", "amount": 1e4}, "tasks": None}
    words = ["compare", grids.write_grid(folder, **less), "--out", str(tmp_path / "out")]
    for more in ([], ["--dry-run"]):
        assert command([*words, "--json", *more]) == 2
        said = capsys.readouterr().out
        assert "one step takes" in said and "1e+04 FLOPs; give a budget of many steps" in said


def test_finished_work_is_not_repeated(folder: Path, out: Path) -> None:
    assert begun(folder, out) == []


@pytest.mark.product(few=1)
@pytest.mark.parametrize(
    ("more", "anew"),
    [
        ({"cells": [{**MASKED, "set": {"objective": {"rate": 0.3}}}, CAUSAL]}, ALL[:3]),
        ({"cells": [{**MASKED, "label": "new"}, CAUSAL], "description": "x"}, []),
        ({"cells": [{**CAUSAL, "set": {}}]}, ALL[3:6]),
        ({"tasks": [{**TASK, "rows": 12}]}, [*ALL[1:3], *ALL[4:]]),
        ({"tasks": [{**TASK, "metric": "f1", "scratch": False}]}, []),
        ({"budget": {"unit": "steps", "amount": 4}}, [ALL[0], ALL[1], ALL[3], ALL[4]]),
        (
            {"seeds": 2},
            [p.replace("seed 1", "seed 2") for p in ALL[:5] if "scratch" not in p],
        ),
    ],
)
def test_a_changed_grid_runs_only_what_changed(
    folder: Path, out: Path, more: dict[str, Any], anew: list[str]
) -> None:
    assert begun(folder, out, **more) == anew
    assert begun(folder, out) == []  # and what was there is there still


@pytest.mark.full
def test_a_changed_task_file_repeats_its_fine_tunings(tmp_path: Path, out: Path) -> None:
    folder = grids.write_files(tmp_path / "grid")
    with (folder / "train.tsv").open("a", encoding="utf-8") as file:
        file.write("x\tgood\t\tlovely\n")
    assert begun(folder, out) == [*ALL[1:3], *ALL[4:]]


def test_a_task_after_another_starts_from_what_that_one_tuned(folder: Path, out: Path) -> None:
    before = {**TASK, "name": "first", "rows": 8}
    other = {**TASK, "name": "later", "after": "first", "scratch": False}
    tasks = [TASK, {**before, "scratch": False}, other]
    comparison = grids.compare(folder, out, cells=[MASKED], tasks=tasks)
    assert not comparison.failures
    losses = {
        task.name: [row["train_loss"] for row in saved["epochs"]]
        for task in comparison.grid.tasks
        if (saved := comparison.saved(Job(comparison.grid.cells[0], 1, task)))
    }
    assert losses["later"] != losses["Reviews"]  # the same seeds, heads and examples
    starts = {score.start for score in gather(comparison).scores if score.task == "later"}
    assert "pretrained" in starts and not any("tuned" in start for start in starts)
    with pytest.raises(UserError, match="after: no task above is 'first'"):
        load_grid(grids.write_grid(folder, tasks=[other, before]))


@pytest.mark.full
def test_a_changed_text_repeats_the_pretrainings(tmp_path: Path, out: Path) -> None:
    folder = grids.write_files(tmp_path / "grid")
    (folder / "text" / "0.txt").write_text("the cat sat on a road\n" * 9, encoding="utf-8")
    assert begun(folder, out, tasks=[]) == [ALL[0], ALL[3]]


@pytest.mark.full
def test_a_comparison_killed_at_any_piece_continues_there(folder: Path, tmp_path: Path) -> None:
    begins = 0
    for ends in (1, 2, 4):

        def die(job: str, last: str = ALL[ends]) -> None:
            if job == last:
                raise runs.Killed

        reporter = Quiet(die)
        with pytest.raises(runs.Killed):
            grids.compare(folder, tmp_path / "out", reporter)
        assert reporter.begun == ALL[begins : ends + 1]
        begins = ends
    assert begun(folder, tmp_path / "out") == ALL[begins:]


@pytest.mark.full
def test_a_run_killed_midway_continues(folder: Path, tmp_path: Path) -> None:
    comparison = Comparison(load_grid(grids.write_grid(folder)), tmp_path / "out", Quiet())
    comparison.prepare()

    class Dying(Quiet):
        def stage(self, name: str) -> Any:
            def advance(share: float, *_: object) -> None:
                if share > 0.6:
                    raise runs.Killed

            return advance

    comparison.progress = Dying()
    with pytest.raises(runs.Killed):
        comparison.run()
    assert begun(folder, tmp_path / "out") == ALL
    assert len([p for p in (tmp_path / "out" / "runs").iterdir() if p.is_dir()]) == 2


def test_a_stopped_run_stops_the_comparison(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foreword.runs.run.train_run", lambda *_: False)
    comparison = Comparison(load_grid(grids.write_grid(folder)), tmp_path / "out", Quiet())
    comparison.prepare()
    assert comparison.run() is False


@pytest.mark.full
def test_a_cell_that_fails_is_reported_and_the_others_go_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(run: Path, *rest: Any) -> bool:
        if "masked" in run.name:
            raise UserError("out of memory on cpu")
        if "odd" in run.name:
            raise ZeroDivisionError("oh")
        return train_run(run, *rest)

    monkeypatch.setattr("foreword.runs.run.train_run", fail)
    reporter = Quiet()
    odd = {"label": "odd", "recipe": "decoder.toml"}
    comparison = grids.compare(folder, tmp_path / "out", reporter, cells=[MASKED, odd, CAUSAL])
    assert reporter.begun == [ALL[0], "odd, seed 1: pretraining", *ALL[3:]]
    assert [(str(f.job), f.error, f.is_fault) for f in comparison.failures] == [
        (ALL[0], "out of memory on cpu", False),
        ("odd, seed 1: pretraining", "ZeroDivisionError: oh", True),
    ]
    assert {run.cell for run in gather(comparison).runs} == {"decoder"}
    monkeypatch.undo()
    assert begun(folder, tmp_path / "out") == ALL[:3]  # tried again


def test_an_interrupt_is_not_recorded_as_a_failure(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("foreword.comparison.compute.tune", interrupt)
    comparison = Comparison(load_grid(grids.write_grid(folder)), tmp_path / "out", Quiet())
    comparison.prepare()
    with pytest.raises(KeyboardInterrupt):
        comparison.run()
    assert comparison.failures == []


def test_a_key_without_a_later_setting_matches_its_default(folder: Path, out: Path) -> None:
    """Keys are compared as values: one without the setting has its default."""
    for file in (out / "runs").glob("*.json"):
        document = stored.read(file)
        assert document["key"]["recipe"]["train"].pop("max_nonfinite_steps") == 5
        stored.write(file, document)
    assert begun(folder, out) == []


def test_the_folder_holds_the_grid(folder: Path, out: Path) -> None:
    grid = load_grid(grids.write_grid(folder))
    text = (out / "grid.toml").read_text(encoding="utf-8")
    assert config.build(Grid, tomllib.loads(text)) == grid


def test_a_folder_with_other_files_is_refused_and_unchanged(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(UserError, match="holds something else than a comparison"):
        Comparison(load_grid(grids.write_grid(folder)), tmp_path, Quiet())
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_results_on_another_text_are_not_replaced(out: Path, tmp_path: Path) -> None:
    (out / "results.json").write_text("{}")
    grid = load_grid(grids.write_grid(grids.write_files(tmp_path / "moved")))
    Comparison(grid, out, Quiet()).require_same_text()
    (tmp_path / "moved" / "text" / "0.txt").write_text("the cat sat on a road\n" * 9)
    with pytest.raises(UserError, match=r"holds the results on another text, .*text; choose anoth"):
        Comparison(grid, out, Quiet()).require_same_text()
    with atomic.locked(out):  # the grid's own text may change
        (out / "grid.toml").write_text(config.dumps(config.to_table(grid)))
    Comparison(grid, out, Quiet()).require_same_text()


def test_a_second_process_is_refused(folder: Path, tmp_path: Path) -> None:
    comparison = Comparison(load_grid(grids.write_grid(folder)), tmp_path / "out", Quiet())
    with atomic.locked(tmp_path / "out"):
        for work in (comparison.prepare, comparison.run):
            with pytest.raises(UserError, match="out: another process is writing here"):
                work()
    assert [path.name for path in (tmp_path / "out").iterdir()] == [atomic.LOCK]
    Comparison(comparison.grid, tmp_path / "out", Quiet()).prepare()


@pytest.mark.full
def test_progress_reports_the_time_left(folder: Path, tmp_path: Path) -> None:
    reporter = Quiet()
    grids.compare(folder, tmp_path / "out", reporter)
    begun = dict.fromkeys(name.partition("/")[0] for name, share, _ in reporter.shares if not share)
    assert list(begun) == list("1234567")
    assert any(left.startswith("at least ") for _, _, left in reporter.shares)
    assert reporter.shares[-1][1:] == (1, "")


@pytest.mark.full
def test_a_piece_is_shown_again_after_its_model_is_built(folder: Path, tmp_path: Path) -> None:
    class Shown(Quiet):
        def stage(self, name: str) -> Any:
            shown.append(name)
            return super().stage(name)

    shown: list[str] = []
    grids.compare(folder, tmp_path / "out", Shown(), cells=[MASKED])
    assert shown[shown.index("building the model") + 1].endswith(f"  {ALL[0]}")
    assert not {"training", "evaluating", "saving"} & set(shown)


def test_a_tuning_that_two_tasks_score_is_done_once_by_jobs_beside_each_other(
    tmp_path: Path,
) -> None:
    submitted = list[str]()

    class AtOnce:
        """A pool that computes what is submitted before it returns."""

        def submit(self, function: Callable[..., Any], *args: Any, **_: Any) -> Future[Any]:
            submitted.append(str(args[0].job))
            future = Future[Any]()
            future.set_result(function(*args))
            return future

    tasks = [grids.TASK, {**grids.TASK, "name": "Again", "metric": "accuracy"}]
    grids.write_files(tmp_path)
    file = grids.write_grid(tmp_path, tasks=tasks, cells=[grids.CAUSAL])
    quiet = grids.Quiet()
    comparison = Comparison(load_grid(file), tmp_path / "out", quiet)
    comparison.prepare()
    run_on_pool(comparison, AtOnce(), lambda: quiet.notes.append("counting"))
    shown = [name for name in quiet.notes if name in (stages.JOBS, "counting")]
    assert stages.JOBS in shown[shown.index("counting") :]
    assert all(comparison.seconds_taken(job) is not None for job in comparison.jobs())
    assert sorted(submitted) == [
        "Reviews: bag of words",
        "decoder, seed 1: Reviews",
        "decoder, seed 1: Reviews from scratch",
        "decoder, seed 1: pretraining",
    ]
