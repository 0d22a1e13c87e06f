"""The training loop learns in each precision, skips bad steps and stops after too many."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from foreword.errors import TrainingStoppedError
from foreword.objectives.causal import Causal
from foreword.train import checkpoint, log
from foreword.types import Batch, Loss
from tests.train import runs


@pytest.mark.product(few=1)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_learns_in_each_precision(precision: str, text: Path, tmp_path: Path) -> None:
    table = runs.table("decoder", steps=60, precision=precision, batch=8, micro_batch=8)
    table["optimizer"] = {"kind": "adamw", "lr": 1e-2}
    run = runs.begin(runs.build(table), text, tmp_path / "run")
    reporter = runs.Quiet()
    runs.train_run(run, reporter)
    losses = [record["loss"] for record in runs.logged(run, "train")]
    heldout = [record["loss"] for record in runs.logged(run, "heldout")]
    assert sum(losses[-5:]) / 5 < losses[0] - 0.8
    assert heldout[-1] < heldout[0]
    assert any(f"{precision} on cpu" in note for note in reporter.notes)
    stored = load_file(checkpoint.all_in(run)[-1] / "weights.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float32}


def test_files_not_read_and_bytes_replaced_are_reported(tmp_path: Path) -> None:
    text = runs.write_text(tmp_path / "text")
    (text / "empty.txt").touch()
    (text / "picture.png").write_bytes(b"\x89PNG")
    (text / "latin.txt").write_bytes("caf\xe9 .\n".encode("latin-1"))
    table = runs.table(steps=1)
    table["read"]["errors"] = "replace"
    reporter = runs.Quiet()
    runs.train_run(runs.begin(runs.build(table), text, tmp_path / "run"), reporter)
    summary = next(note for note in reporter.notes if "tokens to train on" in note)
    for words in ("1 empty files", "1 files not read", "1 bytes replaced"):
        assert words in summary


IN_TURN = {"micro_batch": 2, "threads": 1}


def break_loss(monkeypatch: pytest.MonkeyPatch, bad: set[int]) -> None:
    """Make the loss of some training steps nan; each has two micro-batches in turn."""
    honest, calls = Causal.loss, [-1]

    def loss(self: Causal, model: torch.nn.Module, batch: Batch) -> Loss:
        result = honest(self, model, batch)
        if not model.training:
            return result
        step = calls[0] // 2 + 1  # the first call counts FLOPs
        calls[0] += 1
        return Loss(result.total * math.nan, result.count) if step in bad and step else result

    monkeypatch.setattr(Causal, "loss", loss)


def test_a_step_that_is_not_finite_is_skipped_and_counted(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_loss(monkeypatch, {4, 7})
    run = runs.begin(
        runs.recipe(checkpoints=12, kept_checkpoints=12, **IN_TURN), text, tmp_path / "run"
    )
    reporter = runs.Quiet()
    assert runs.train_run(run, reporter)
    skipped = {record["step"]: record["skipped"] for record in runs.logged(run, "train")}
    assert [skipped[n] for n in (3, 4, 6, 7, 12)] == [0, 1, 1, 2, 2]
    assert sum("not finite, the step is skipped" in line for line in reporter.warnings) == 2
    assert [r["loss"] for r in log.read(run) if r["kind"] == "train" and r["step"] == 4] == [None]
    weights = [
        (run / "checkpoints" / checkpoint.name_of(n) / "weights.safetensors").read_bytes()
        for n in (3, 4, 5)
    ]
    assert weights[0] == weights[1] != weights[2]


def test_skipping_too_many_steps_in_a_row_stops_the_run(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_loss(monkeypatch, {2, 5, 6, 7, 8})
    run = runs.begin(runs.recipe(max_nonfinite_steps=3, **IN_TURN), text, tmp_path / "run")
    with pytest.raises(TrainingStoppedError, match="3 steps in a row") as stopped:
        runs.train_run(run)
    last = checkpoint.newest(run)
    assert str(last) in str(stopped.value)
    assert checkpoint.read_state(last)["step"] == 4  # none of steps that change nothing
    assert runs.logged(run, "train")[-1]["step"] <= 7
