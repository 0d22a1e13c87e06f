"""Cached features equal computed ones, and are computed once for all epochs and seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.tuning import fine_tuner
from foreword.tuning.features import Features, count_chunks, fits_in_memory
from foreword.tuning.job import Examples
from foreword.tuning.outputs import predict
from foreword.tuning.settings import TuneSettings
from foreword.tuning.starting_network import build_network
from foreword.tuning.strategies.frozen import Frozen
from foreword.tuning.strategies.full import Full
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tasks.text_to_text import TextToText
from foreword.tuning.tune_data import TuneData, draw_and_encode
from tests.tuning.runs import LAYOUTS, make_run, reviews, tune

CPU, FP32 = torch.device("cpu"), torch.float32
STILL = TuneSettings(strategy=Frozen(lr=1e-2), seeds=2, epochs=3, precision="fp32")


@pytest.fixture
def trained(tmp_path: Path) -> TrainedModel:
    return open_run(make_run(tmp_path), "cpu")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an entry for each batch that a backbone reads."""
    batches: list[int] = []
    run_backbone = fine_tuner.Network.run_backbone

    def counted(self: Any, batch: Any) -> Any:
        batches.append(1)
        return run_backbone(self, batch)

    monkeypatch.setattr(fine_tuner.Network, "run_backbone", counted)
    return batches


def encoded(trained: TrainedModel, task: Task, train: int, dev: int) -> TuneData:
    examples = Examples(reviews(train, 1), reviews(dev, 2))
    return draw_and_encode(trained, task, [TuneSettings(seeds=1)], examples)


ONE_STACK = [layout for layout in LAYOUTS if layout != "encoder_decoder"]


@pytest.mark.product(few=3)
@pytest.mark.parametrize(
    ("layout", "task"),
    [(layout, Classify()) for layout in LAYOUTS]
    + [(layout, Classify(pooling=how)) for layout in ONE_STACK for how in ("mean", "max")]
    + [(layout, Classify(mix_layers=True)) for layout in ONE_STACK],
)
def test_cached_features_equal_computed_ones(tmp_path: Path, layout: str, task: Task) -> None:
    trained = open_run(make_run(tmp_path, layout), "cpu")
    data = encoded(trained, task, 300, 7)
    network = build_network(data.trained, task, data.labels, None)
    network.initialise_head(1)
    chunks: list[None] = []
    cached = Features.compute(network, data.train, CPU, FP32, lambda: chunks.append(None))
    assert len(chunks) == count_chunks(data.train) == 2
    assert len(cached) == len(data.train) == 300
    numbers = np.array([299, 3, 256, 40])
    (batch,) = cached.batches(numbers, "cpu")
    assert batch.numbers.tolist() == numbers.tolist()
    for n, target, features in zip(numbers, batch.targets, batch.cached.unbind(1), strict=True):
        (alone,) = data.train.batches(np.array([n]), "cpu")
        assert target == alone.targets[0]
        with torch.no_grad():
            expected = alone.to("cpu").features(network)
        torch.testing.assert_close(features, expected[:, 0], rtol=1e-4, atol=1e-5)
    outputs = (predict(network, of, CPU, FP32) for of in (cached, data.train))
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-5)


ANSWERS = TextToText("the ", ("bad=dull grim", "good=fine"))  # of two words and of one


@pytest.mark.product(few=1)
@pytest.mark.parametrize(
    ("layout", "task"),
    [
        ("encoder", Classify(dropout=0.0)),  # its draws would fall on examples in another order
        ("encoder", Classify(dropout=0.0, mix_layers=True)),
        ("encoder_decoder", ANSWERS),
    ],
)
def test_training_on_cached_features_gives_the_same_scores(
    tmp_path: Path, layout: str, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = open_run(make_run(tmp_path, layout, tied=False), "cpu")
    results = []
    for fits in (True, False):
        monkeypatch.setattr("foreword.tuning.trainings.fits_in_memory", lambda *_, fits=fits: fits)
        results.append(tune(trained, task, reviews(64, 1), reviews(32, 2), STILL))
    cached, computed = (dict(result.network.named_parameters()) for result in results)
    for name, weight in cached.items():
        torch.testing.assert_close(weight, computed[name], rtol=1e-3, atol=1e-5)
    losses = [[epoch.about["train_loss"] for epoch in result.epochs] for result in results]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_features_are_computed_once_for_all_epochs_and_seeds(
    trained: TrainedModel, reads: list[int]
) -> None:
    for seeds, epochs in ((1, 1), (3, 4)):
        reads.clear()
        settings = replace(STILL, seeds=seeds, epochs=epochs)
        tune(trained, Classify(), reviews(64, 1), reviews(32, 2), settings)
        assert len(reads) == 2  # all of training in one batch, all of dev in another


@pytest.mark.full
def test_another_backbone_computes_its_own_features(trained: TrainedModel) -> None:
    """Random bodies differ by seed, and none is taken for the pretrained one."""
    with torch.no_grad():
        for p in trained.model.parameters():
            p.add_(0.01)  # or it is the random backbone of seed 1
    scratch = replace(STILL, from_scratch=True)
    data = (reviews(64, 1), reviews(32, 2))
    alone = [tune(trained, Classify(), *data, variant).epochs for variant in (scratch, STILL)]
    together = tune(trained, Classify(), *data, [scratch, STILL]).epochs
    again = tune(trained, Classify(), *data, [STILL, scratch]).epochs
    assert together == alone[0] + alone[1]
    assert again == alone[1] + alone[0]
    assert len({epoch.about["train_loss"] for epoch in together if epoch.about["epoch"] == 1}) == 4


def test_a_trained_backbone_reads_in_every_epoch(trained: TrainedModel, reads: list[int]) -> None:
    settings = replace(STILL, strategy=Full(lr=1e-3), seeds=1, epochs=2)
    tune(trained, Classify(), reviews(32, 1), reviews(16, 2), settings)
    assert len(reads) == 2 * (32 // settings.batch + 1)


def test_features_too_large_for_memory_are_not_cached(
    trained: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Classify(mix_layers=True)
    data = encoded(trained, task, 10, 6)
    expected = 4 * 16 * 3 * 32  # bytes of 16 examples, 3 layers, a width of 32
    for memory, fits in ((8 * expected, True), (8 * expected - 8, False)):
        monkeypatch.setattr("foreword.tuning.features.memory_of", lambda _, memory=memory: memory)
        assert fits_in_memory(trained.recipe.model, task, data.train, *data.dev) == fits
