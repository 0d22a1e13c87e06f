"""Values that are not finite are never written; the message names the last good checkpoint."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from foreword.errors import NotFiniteError, TrainingStoppedError
from foreword.models.word_vectors import WordVectorsBackbone
from foreword.ngrams.table import NgramTable
from foreword.objectives.causal import Causal
from foreword.runs.override import override
from foreword.runs.provenance import read_state, write_files
from foreword.runs.run import train_run
from foreword.train import checkpoint
from foreword.train.finite import require_finite
from foreword.train.optimizers.adamw import AdamW
from foreword.types import Batch, Loss
from tests.runs import test_offline
from tests.train import runs


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["weights", "optimizer", "memory"])
def test_tensors_that_are_not_finite_are_not_saved(tmp_path: Path, where: str, bad: float) -> None:
    model = nn.Linear(3, 2)
    optimizer = AdamW().build(model)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    memory = [(torch.ones(2),)]
    spoilt = {
        "weights": model.weight.data,
        "optimizer": optimizer.state[model.bias]["exp_avg_sq"],
        "memory": memory[0][0],
    }[where]
    spoilt.view(-1)[1] = bad
    with pytest.raises(NotFiniteError, match=f"{where}: .* is not finite"):
        checkpoint.save(tmp_path / "step", model, optimizer, {}, memory)
    assert list(tmp_path.iterdir()) == []


def test_large_numbers_are_finite() -> None:
    require_finite({"large": torch.full((9,), 3e38), "ids": torch.ones(3, dtype=torch.int64)})


def blown_up(text: Path, folder: Path, **train: Any) -> Path:
    """A run whose matrices are multiplied by 1 - 1000 in each step."""
    made = runs.table(steps=30, evaluations=1, checkpoints=30, **train)
    made["optimizer"] = {"kind": "sgd", "lr": 100.0, "decay": 10.0}
    made["schedule"] = {"kind": "constant", "warmup": {"share": 0.0}}
    return runs.begin(runs.build(made), text, folder)


def test_a_run_that_blows_up_goes_back_to_weights_that_gave_a_loss(
    text: Path, tmp_path: Path
) -> None:
    run = blown_up(text, tmp_path / "run", kept_checkpoints=30)
    reporter = runs.Quiet()
    with pytest.raises(TrainingStoppedError) as stopped:
        runs.train_run(run, reporter)
    error, good = str(stopped.value), checkpoint.newest(run)
    assert "\n" not in error and "not finite" in error
    assert f"the last good checkpoint is {good};" in error
    assert f"'foreword resume {run} --set optimizer.lr=50' resumes from it" in error
    losses = {r["step"]: r["loss"] for r in runs.logged(run, "train")}
    step = checkpoint.read_state(good)["step"]
    assert losses[step + 1] is not None  # what its weights gave
    assert losses[max(losses)] is None


@pytest.mark.full
def test_a_run_that_blew_up_resumes_at_a_lower_rate(text: Path, tmp_path: Path) -> None:
    run = blown_up(text, tmp_path / "run", kept_checkpoints=30)
    with pytest.raises(TrainingStoppedError):
        runs.train_run(run)
    for folder in checkpoint.all_in(run)[2:]:  # so that the weights are not yet wild
        shutil.rmtree(folder)
    override(run, ["optimizer.lr=1e-3", "optimizer.decay=0"])
    assert runs.train_run(run)
    assert checkpoint.read_state(checkpoint.newest(run))["step"] == 30


def test_infinite_weights_under_a_finite_loss_are_not_saved(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The infinite value is in the row of a token that never occurs, so no loss shows it."""
    honest = torch.optim.SGD.step
    steps = [0]

    def step(self: torch.optim.SGD, *args: Any) -> None:
        honest(self, *args)
        steps[0] += 1
        if steps[0] == 4:
            self.param_groups[0]["params"][0].data[1, 0] = math.inf

    monkeypatch.setattr(torch.optim.SGD, "step", step)
    made = runs.table(steps=8, checkpoints=8, evaluations=1)
    made["optimizer"] = {"kind": "sgd", "lr": 1e-3}
    run = runs.begin(runs.build(made), text, tmp_path / "run")
    with pytest.raises(
        TrainingStoppedError, match=r"weights: .*embedding.* is not finite"
    ) as stopped:
        runs.train_run(run)
    saved = checkpoint.read_state(checkpoint.newest(run))["step"]
    assert saved >= 2 and str(stopped.value).startswith(f"step {saved + 1}: ")


def test_a_held_out_loss_of_nan_is_never_the_best(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Causal.loss

    def loss(self: Causal, model: nn.Module, batch: Batch) -> Loss:
        result = honest(self, model, batch)
        factor = 1.0 if model.training else math.nan
        return Loss(result.total * factor, result.count)

    monkeypatch.setattr(Causal, "loss", loss)
    run = runs.begin(runs.recipe(steps=4, evaluations=2), text, tmp_path / "run")
    reporter = runs.Quiet()
    assert runs.train_run(run, reporter)
    state = checkpoint.read_state(checkpoint.newest(run))
    assert state["best"] is None and state["best_loss"] is None
    assert sum("the held-out loss is not finite" in line for line in reporter.warnings) == 2


def test_vectors_that_are_not_finite_are_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = WordVectorsBackbone.fit

    def fit(self: WordVectorsBackbone, reading: Any) -> Any:
        result = honest(self, reading)
        self.embedding.token.weight.data[0, 0] = math.nan
        return result

    monkeypatch.setattr(WordVectorsBackbone, "fit", fit)
    run = test_offline.begin(tmp_path, test_offline.recipe("word_vectors"))
    with pytest.raises(TrainingStoppedError, match=r"training: weights: .*; no checkpoint yet; "):
        train_run(run, test_offline.Recorder())
    assert checkpoint.all_in(run) == []


def test_probabilities_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    table = NgramTable.uniform(np.ones(5, dtype=bool), start=-1)
    table.save(tmp_path)
    table.log_probs[0][2] = -np.inf  # a probability of 0
    table.save(tmp_path)
    for bad in (np.nan, np.inf):
        table.log_probs[0][2] = bad
        with pytest.raises(NotFiniteError, match="probs of the 1-grams"):
            table.save(tmp_path)


@pytest.mark.full
def test_a_resume_that_fails_at_once_deletes_no_checkpoint(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs.whole(
        runs.recipe(steps=4, checkpoints=4, kept_checkpoints=4), text, tmp_path / "run"
    )
    honest = Causal.loss

    def loss(self: Causal, model: nn.Module, batch: Batch) -> Loss:
        result = honest(self, model, batch)
        return Loss(result.total * math.nan, result.count)

    monkeypatch.setattr(Causal, "loss", loss)
    write_files(run, read_state(run), runs.recipe(steps=9, checkpoints=9, kept_checkpoints=4))
    before = checkpoint.all_in(run)
    with pytest.raises(TrainingStoppedError, match=r"; without .*step-00000004 it goes back one"):
        runs.train_run(run)
    assert checkpoint.all_in(run) == before


def test_the_only_checkpoint_is_not_deleted(text: Path, tmp_path: Path) -> None:
    run = blown_up(text, tmp_path / "run", kept_checkpoints=1)
    with pytest.raises(TrainingStoppedError, match="not finite"):
        runs.train_run(run)
    assert len(checkpoint.all_in(run)) >= 1
