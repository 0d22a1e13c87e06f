"""Runs that are tracked: each record once and in order, whatever happens to the run."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from foreword import pretrain, resume, tune
from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.runs.tracking import FILE, tracked, trackers_of
from foreword.train import log
from tests.train import runs
from tests.tuning.runs import reviews

from . import stand_in


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    text = runs.write_text(tmp_path / "text")
    return runs.begin(runs.recipe("decoder", steps=8), text, tmp_path / "run")


def heard() -> list[tuple[str, Any]]:
    (one,) = stand_in.HEARD.values()
    return one


def logged(name: str) -> list[tuple[int, Any]]:
    records = [value for what, value in heard() if what == "log"]
    return [(record["step"], record[name]) for record in records if name in record]


def expected(run: Path, kind: str) -> list[tuple[int, float]]:
    return [(r["step"], r["loss"]) for r in log.read(run) if r["kind"] == kind]


def test_all_records_and_the_recipe_are_tracked(wandb: None, begun: Path) -> None:
    resume(begun, track="wandb", progress=False)
    assert [what for what, _ in heard()][:2] == ["init", "config"]
    assert heard()[0][1] == ("foreword", "run")
    assert heard()[1][1]["train"]["precision"] in ("fp32", "bf16")  # as it was resolved
    assert heard()[-1] == ("finish", 0)
    assert logged("train/loss") == expected(begun, "train")
    assert logged("heldout/loss") == expected(begun, "heldout")
    (first, *_) = logged("samples")
    assert first[1].columns == ["prompt", "text"] and len(first[1].data) == 3


@pytest.mark.full
def test_a_killed_run_continues_the_same_tracker_run_without_going_back(
    wandb: None, begun: Path
) -> None:
    inner = runs.Quiet(6, runs.kill)
    with pytest.raises(runs.Killed), tracked(begun, trackers_of("wandb"), inner) as reporter:
        runs.train_run(begun, reporter)  # type: ignore[arg-type]
    assert heard()[-1] == ("finish", 1)
    resume(begun, track="wandb", progress=False)
    assert logged("train/loss") == expected(begun, "train")
    assert logged("heldout/loss") == expected(begun, "heldout")


@pytest.mark.full
def test_a_tracker_that_comes_later_is_told_the_earlier_records(wandb: None, begun: Path) -> None:
    runs.train_run(begun)
    resume(begun, track="wandb", progress=False)
    assert logged("train/loss") == expected(begun, "train")
    resume(begun, track="wandb", progress=False)
    assert logged("train/loss") == expected(begun, "train")


@pytest.mark.product(few=1)
@pytest.mark.parametrize("progress", [True, False])
def test_a_tracker_that_fails_is_told_once_and_training_goes_on(
    wandb: None, begun: Path, capsys: pytest.CaptureFixture[str], progress: bool
) -> None:
    stand_in.FAILS.append(True)
    assert resume(begun, track="wandb", progress=progress).is_done
    err = capsys.readouterr().err
    assert err.count("wandb: tracking stopped: the network is gone; training continues") == 1
    assert err.count("tracking stopped") == 1


def test_a_missing_package_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    text = runs.write_text(tmp_path / "text")
    words = ["pretrain", "gpt2_tiny", "--data", str(text), "--out", str(tmp_path / "run")]
    assert command([*words, "--track", "wandb"]) == 2
    err = capsys.readouterr().err
    assert "the package wandb is not installed; pip install 'foreword[track]'" in err
    assert err.count("\n") == 1 and not (tmp_path / "run").exists()
    assert command([*words, "--track", "tensorbord"]) == 2
    assert "did you mean 'tensorboard'?" in capsys.readouterr().err


def test_a_tracker_that_cannot_begin_is_refused_before_training(
    wandb: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("not logged in")

    monkeypatch.setattr(stand_in, "init", fail)
    with pytest.raises(UserError, match="--track wandb: not logged in"):
        pretrain(
            "gpt2_tiny", runs.write_text(tmp_path / "text"), tmp_path / "run", track=["wandb"],
            settings={"tokenizer.vocab": 400, "packing.length": 16}, progress=False,
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_a_damaged_note_of_the_trackers_is_refused(wandb: None, begun: Path) -> None:
    resume(begun, track="wandb", progress=False)
    (begun / FILE).write_text("{}")
    with pytest.raises(UserError, match="delete it"):
        resume(begun, track="wandb", progress=False)


@pytest.mark.full
def test_each_epoch_of_fine_tuning_is_tracked(wandb: None, begun: Path) -> None:
    resume(begun, progress=False)
    examples = [(e.text, e.label) for e in reviews(24, 1)]
    tune(
        begun,
        examples,
        examples,
        seeds=2,
        epochs=2,
        name="mine",
        track="wandb",
        progress=False,
        strategy="full",
    )
    assert heard()[0][1] == ("foreword", "tune-classify-mine")
    assert heard()[1][1]["task"]["kind"] == "classify"
    for seed in (1, 2):
        scores = logged(f"pretrained, full, seed {seed}/accuracy")
        assert [step for step, _ in scores] == [1, 2]


def test_tensorboard_reads_what_was_tracked(begun: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    inner = runs.Quiet(6, runs.kill)
    trackers = trackers_of("tensorboard")
    with pytest.raises(runs.Killed), tracked(begun, trackers, inner) as reporter:
        runs.train_run(begun, reporter)  # type: ignore[arg-type]
    resume(begun, track="tensorboard", progress=False)

    events = EventAccumulator(str(begun / "tensorboard"), {"scalars": 0, "tensors": 0})
    events.Reload()
    scalars = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert scalars == [(step, pytest.approx(loss)) for step, loss in expected(begun, "train")]
    texts = events.Tensors("samples/text_summary")
    assert [t.step for t in texts] == [r["step"] for r in log.read(begun) if r["kind"] == "samples"]
    (recipe, *_) = events.Tensors("recipe/text_summary")
    assert b"[model]" in recipe.tensor_proto.string_val[0]
