"""Runs on CUDA learn and resume, and FlexAttention equals dense masks."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from foreword.nn.attention import dense_only
from foreword.runs.corpus import corpus
from foreword.runs.run_folder import Run
from foreword.runs.setup import set_up_training
from foreword.train.step import evaluate
from tests.train import runs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def table(family: str, **train: object) -> dict[str, object]:
    table = runs.table(family, device="cuda", precision="auto", batch=16, micro_batch=8, **train)
    table["model"] |= {"d_model": 64, "dropout": 0.1, "attention_dropout": 0.0}
    table["packing"]["length"] = 128
    table["optimizer"] = {"kind": "adamw", "lr": 5e-3}
    return table


@pytest.mark.parametrize("family", runs.FAMILIES)
def test_a_run_on_a_gpu_learns_and_resumes(family: str, tmp_path: Path) -> None:
    text = runs.write_text(tmp_path / "text", files=20)
    made = runs.build(table(family, steps=40))
    whole = runs.begin(made, text, tmp_path / "whole")
    reporter = runs.Quiet()
    runs.train_run(whole, reporter)
    assert any("bf16 on NVIDIA" in note for note in reporter.notes)
    losses = [record["loss"] for record in runs.logged(whole, "train")]
    assert losses[-1] < losses[0] - 0.5
    run = runs.begin(made, text, tmp_path / "run")
    runs.die_at(run, 15)
    runs.train_run(run)
    resumed = [record["loss"] for record in runs.logged(run, "train")]
    assert [r["step"] for r in runs.logged(run, "train")] == list(range(1, 41))
    # Atomic additions on a GPU have no fixed order, so equal to rounding, not to the bit.
    assert resumed == pytest.approx(losses, rel=0.02)


@pytest.mark.parametrize("family", runs.FAMILIES)
def test_flex_attention_gives_the_loss_of_dense_masks(family: str, tmp_path: Path) -> None:
    text = runs.write_text(tmp_path / "text", files=20)
    made = runs.build(table(family, compile="off"))
    made = dataclasses.replace(made, train=dataclasses.replace(made.train, precision="fp32"))
    run = runs.begin(made, text, tmp_path / "run")
    ready = set_up_training(made, *corpus(Run(run), runs.stage))

    def loss() -> float:
        return evaluate(
            ready.model,
            ready.feed.micro_batches(0),
            lambda batch: made.objective.loss(ready.model, batch),
            ready.dtype,
        ).loss

    flex = loss()
    with dense_only():
        assert loss() == pytest.approx(flex, rel=1e-4)
