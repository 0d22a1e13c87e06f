"""The average of the last weights is the run's model, and resuming leaves it bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from foreword.runs.corpus import corpus
from foreword.runs.measure import measure_rows
from foreword.runs.run import train_run
from foreword.runs.run_folder import Run, open_run
from foreword.runs.setup import heldout_feed
from foreword.train import checkpoint
from foreword.train.average import WeightAverage
from foreword.train.hooks import Hook
from foreword.train.loop import Loop
from tests.train import runs

LAST_THIRD = 1 / 3  # of 12 steps: 9 to 12


class Collect(Hook):
    """Collects the weights after each step, and those that the model has while a hook runs."""

    times = 12

    def __init__(self) -> None:
        self.trained: list[dict[str, torch.Tensor]] = []
        self.shown: list[dict[str, torch.Tensor]] = []

    def after_step(self, loop: Loop) -> None:
        self.trained.append(weights(loop.model))

    def run(self, loop: Loop) -> None:
        self.shown.append(weights(loop.model))


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


AVERAGED = runs.recipe(average=LAST_THIRD, checkpoints=12, evaluations=6)


def averaged(text: Path, run: Path) -> Path:
    return runs.begin(AVERAGED, text, run)


def test_the_saved_model_is_the_mean_of_the_weights_after_the_last_steps(
    text: Path, tmp_path: Path
) -> None:
    run, collect = averaged(text, tmp_path / "run"), Collect()
    assert train_run(run, runs.Quiet(), hooks=[collect])
    folder = checkpoint.newest(run)
    saved, unaveraged = (load_file(folder / f"{n}.safetensors") for n in ("weights", "unaveraged"))
    for name, value in saved.items():
        mean = torch.stack([step[name] for step in collect.trained[8:]]).mean(0)
        torch.testing.assert_close(value, mean)
        assert torch.equal(collect.shown[-1][name], value)
        assert torch.equal(collect.shown[7][name], collect.trained[7][name])
        assert torch.equal(unaveraged[name], collect.trained[-1][name])
    assert checkpoint.read_state(folder)["averaged"] == 4


def test_averaging_leaves_the_training_as_it_is(text: Path, tmp_path: Path) -> None:
    run = runs.whole(AVERAGED, text, tmp_path / "run")
    plain = runs.whole(runs.recipe(), text, tmp_path / "plain")
    assert runs.logged(run, "train") == runs.logged(plain, "train")
    last = runs.last_bytes(run), runs.last_bytes(plain)
    assert last[0]["unaveraged.safetensors"] == last[1]["weights.safetensors"]
    assert last[0]["weights.safetensors"] != last[1]["weights.safetensors"]
    assert "unaveraged.safetensors" not in last[1]


def test_a_run_resumed_while_averaging_equals_an_uninterrupted_one(
    text: Path, tmp_path: Path
) -> None:
    whole = runs.whole(AVERAGED, text, tmp_path / "whole")
    run = averaged(text, tmp_path / "run")
    for step in (9, 10, 12):
        runs.die_at(run, step)
    assert checkpoint.read_state(checkpoint.newest(run))["averaged"] == 3
    assert runs.train_run(run)
    assert runs.last_bytes(run) == runs.last_bytes(whole)
    for kind in ("train", "heldout"):
        assert runs.logged(run, kind) == runs.logged(whole, kind)


@pytest.mark.full
def test_the_last_held_out_loss_is_that_of_the_average(text: Path, tmp_path: Path) -> None:
    run = averaged(text, tmp_path / "run")
    reporter = runs.Quiet()
    assert runs.train_run(run, reporter)
    assert sum("step 9: from here on the model" in note for note in reporter.notes) == 1
    trained = open_run(run)
    _, prepared = corpus(Run(run), runs.stage)
    feed = heldout_feed(trained.recipe, prepared.heldout, trained.vocab)
    measured = measure_rows(trained.recipe, trained.model, feed, 6, torch.float32)
    assert measured.loss == pytest.approx(runs.logged(run, "heldout")[-1]["loss"], rel=1e-6)


def test_averaging_begins_anew_when_the_budget_grows() -> None:
    model = nn.Linear(1, 1, bias=False)
    average, steps = WeightAverage(model, share=0.2), 0
    for progress, value in [(0.8, 1.0), (0.9, 2.0), (1.0, 4.0), (0.5, 8.0), (0.85, 16.0)]:
        with torch.no_grad():
            model.weight.fill_(value)
        steps = average.update(progress, steps)
        with average.in_place():
            shown = model.weight.item()
        expected = {1.0: (0, 1.0), 2.0: (1, 2.0), 4.0: (2, 3.0), 8.0: (0, 8.0), 16.0: (1, 16.0)}
        assert (steps, shown) == expected[value]
        assert model.weight.item() == value
