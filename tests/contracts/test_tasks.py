"""What is true of every task of fine-tuning: a kind in `tune/tasks/`."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from foreword import config, kinds
from foreword.errors import UserError
from foreword.runs.trained_model import open_run
from foreword.tune.fine_tuner import TuneSettings
from foreword.tune.result import PLAIN
from foreword.tune.run import tune
from foreword.tune.strategies.full import Full
from foreword.tune.tasks._contract import Labelled
from tests.tune.runs import make_run, reviews

EVERY = kinds.names("tune/tasks")
every_kind = pytest.mark.parametrize("kind", EVERY)
FAST = TuneSettings(strategy=Full(lr=1e-3), seeds=2, epochs=1, precision="fp32")


def made(kind: str) -> Any:
    return kinds.load("tune/tasks", kind)()


def graded(count: int, seed: int, *, pairs: bool = False) -> list[Labelled]:
    """Labels that are words and numbers alike."""
    number = {"bad": "1", "good": "4"}
    found = [e._replace(label=number[e.label]) for e in reviews(count, seed)]
    return [e._replace(pair="we saw the day") for e in found] if pairs else found


@every_kind
def test_its_settings_read_back_equal(kind: str) -> None:
    task = made(kind)
    table = tomllib.loads(config.dumps(config.to_table(task)))
    assert config.build(type(task), table, "task") == task


@every_kind
@pytest.mark.parametrize("pairs", [False, True])
def test_it_scores_a_network_and_one_who_reads_nothing_alike(
    tmp_path: Path, kind: str, pairs: bool
) -> None:
    opened = open_run(make_run(tmp_path, "encoder_decoder"), "cpu")
    train, dev = graded(24, 1, pairs=pairs), graded(10, 2, pairs=pairs)
    result = tune(opened, made(kind), train, dev, FAST)
    tuned, chance_loss = result.rows
    plain = {*PLAIN, "seeds", "epochs"}
    metrics = [name for name in chance_loss if name not in plain]
    assert metrics == [name for name in tuned if name not in plain]
    assert all(math.isfinite(chance_loss[name]) for name in metrics if not name.endswith("_std"))
    assert all(math.isfinite(tuned[name]) for name in metrics)
    assert chance_loss["start"] == "no model"
    assert result.settings["task"]["kind"] == kind


@every_kind
def test_the_loss_is_a_sum_and_a_count(kind: str) -> None:
    """Micro-batches of any size then add up to the same."""
    task, random = made(kind), torch.Generator().manual_seed(1)
    outputs = torch.randn(12, 2, generator=random)
    targets = torch.arange(12) % 2
    whole = task.loss(outputs, targets)
    components = [task.loss(outputs[:5], targets[:5]), task.loss(outputs[5:], targets[5:])]
    assert sum(part.total.item() for part in components) == pytest.approx(whole.total.item())
    assert sum(part.weight.item() for part in components) == whole.weight.item() == 12


@every_kind
def test_without_a_dev_example_it_is_refused(tmp_path: Path, kind: str) -> None:
    opened = open_run(make_run(tmp_path, "encoder_decoder"), "cpu")
    with pytest.raises(UserError, match="no dev example"):
        tune(opened, made(kind), graded(8, 1), [], FAST)
