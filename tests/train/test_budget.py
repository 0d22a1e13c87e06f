"""Every budget ends the run on time, and the schedule with it."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from foreword.errors import UserError
from foreword.runs.corpus import corpus
from foreword.runs.run_folder import Run
from foreword.runs.setup import set_up_training
from foreword.train import checkpoint, log, loop
from foreword.train.budget import Budget, Progress
from foreword.train.settings import TrainSettings
from tests.train import runs

FLOOR, LR = 0.1, 1e-3


def scheduled(**train: object) -> runs.Recipe:
    table = runs.table(**train)
    table["schedule"] = {"kind": "linear", "floor": FLOOR, "warmup": {"share": 0.1}}
    table["optimizer"] = {"kind": "adamw", "lr": LR}
    return runs.build(table)


def train(text: Path, run: Path, **budget: object) -> list[dict[str, object]]:
    runs.train_run(runs.begin(scheduled(**budget), text, run))
    return [record for record in log.read(run) if record["kind"] == "train"]


def ends_low(records: list[dict[str, object]]) -> None:
    """Check that the rate falls after the warm-up, to at most one step above the floor."""
    rates = [record["lr"] for record in records]
    assert max(rates) <= LR * (1 + 1e-9)
    top = rates.index(max(rates))
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert FLOOR * LR <= rates[-1] < (FLOOR + 1.5 * 0.9 / (0.9 * len(records))) * LR


def test_a_budget_in_steps_ends_the_run_and_its_schedule(text: Path, tmp_path: Path) -> None:
    records = train(text, tmp_path / "run", steps=30)
    assert [record["step"] for record in records] == list(range(1, 31))
    ends_low(records)


@pytest.mark.full
def test_a_budget_in_tokens_ends_the_run_and_its_schedule(text: Path, tmp_path: Path) -> None:
    records = train(text, tmp_path / "run", tokens=1000)
    assert records[-1]["tokens"] == 1024  # steps of 4 rows of 16: the first that is not below
    assert len(records) == 16
    ends_low(records)


def test_a_budget_of_less_than_a_step_is_refused(text: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"one step takes \S+ FLOPs, and the budget is 1e\+04") as e:
        train(text, tmp_path / "run", flops=1e4)
    assert "\n" not in str(e.value)


@pytest.mark.full
def test_a_budget_in_flops_ends_the_run_and_its_schedule(text: Path, tmp_path: Path) -> None:
    step = train(text, tmp_path / "one", steps=1)[0]["flops"]
    assert step > 0
    records = train(text, tmp_path / "run", flops=step * 19.5)
    assert len(records) == 20
    assert records[-1]["flops"] == pytest.approx(20 * step)
    ends_low(records)


@pytest.mark.full
def test_a_budget_in_hours_ends_the_run_and_its_schedule(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(ticks) / 4)  # a quarter second at each look
    monkeypatch.setattr(loop, "time", clock)
    records = train(text, tmp_path / "whole", hours=40 / 3600)
    assert 40 <= records[-1]["seconds"] < 42
    ends_low(records)
    run = runs.begin(scheduled(hours=40 / 3600), text, tmp_path / "run")
    runs.die_at(run, len(records) // 2)
    spent = checkpoint.read_state(checkpoint.newest(run))["spent"]["seconds"]
    assert 10 < spent < 30
    runs.train_run(run)
    resumed = [record for record in log.read(run) if record["kind"] == "train"]
    assert 40 <= resumed[-1]["seconds"] < 42  # only what was left
    ends_low(resumed)


def test_one_budget_is_chosen_by_precedence() -> None:
    assert Budget.of(TrainSettings(steps=5)) == Budget("steps", 5)
    assert Budget.of(TrainSettings(steps=5, epochs=2)) == Budget("epochs", 2)
    assert Budget.of(TrainSettings(epochs=2, tokens=7)) == Budget("tokens", 7)
    assert Budget("epochs", 0.5).applied_to(TrainSettings(hours=3)) == TrainSettings(epochs=0.5)
    assert Budget.of(TrainSettings(tokens=7, flops=2e3)) == Budget("flops", 2e3)
    assert Budget.of(TrainSettings(flops=2e3, hours=0.5)) == Budget("hours", 0.5)
    assert [Budget("hours", h).describe() for h in (0.014, 0.5, 2)] == ["50 s", "30 min", "2 h"]


@pytest.mark.full
def test_epochs_are_counted_in_rows(text: Path, tmp_path: Path) -> None:
    """Every row is read once per epoch although the run is killed; each epoch has its own rate."""
    table = runs.table("transformer_xl", epochs=3, evaluations=3)
    table["schedule"] = {"kind": "epochs", "epochs": 3, "full": 1}
    made = runs.build(table)
    run = runs.begin(made, text, tmp_path / "run")
    runs.die_at(run, 1)
    assert runs.train_run(run)
    ready = set_up_training(made, *corpus(Run(run), runs.stage))
    steps = math.ceil(3 * ready.feed.packed.rows_per_epoch / 4)
    state = checkpoint.read_state(checkpoint.newest(run))
    assert state["step"] == steps
    assert state["spent"]["epochs"] == ready.feed.epochs(steps) >= 3 > ready.feed.epochs(steps - 1)
    rates = [(record["step"], record["lr"]) for record in runs.logged(run, "train")]
    for step, rate in rates:
        epoch = int(ready.feed.epochs(step - 1))
        assert rate == pytest.approx(made.optimizer.lr * 0.5**epoch)
    assert len({rate for _, rate in rates}) == 3
    ends = [record["step"] for record in runs.logged(run, "heldout")]
    assert ends == [math.ceil(n * ready.feed.packed.rows_per_epoch / 4) for n in (1, 2, 3)]


def test_total_steps_are_extrapolated_from_progress() -> None:
    spent = Progress(steps=10, tokens=250, flops=5e6, seconds=36)
    for budget, steps in (
        (Budget("steps", 40), 40), (Budget("tokens", 1000), 40), (Budget("hours", 0.1), 100)
    ):  # fmt: skip
        progress = budget.progress_of_steps(spent, Progress())
        assert budget.total_steps(spent.steps, progress) == pytest.approx(steps)
    assert Budget("flops", 1e6).progress(spent) == 1.0
