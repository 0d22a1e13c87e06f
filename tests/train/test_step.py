"""One step: any split into micro-batches is the same step; a step that is not finite is skipped."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from foreword.runs.corpus import corpus
from foreword.runs.run_folder import Run
from foreword.runs.setup import TrainingSetup, set_up_training
from foreword.train.step import StepOptions, evaluate, train_step
from foreword.train.workers import accumulate_on
from foreword.types import Batch, Loss
from tests.train import runs


def ready(text: Path, folder: Path, family: str = "encoder", **train: object) -> TrainingSetup:
    table = runs.table(family, **train)
    table["model"] |= {"dropout": 0.0, "attention_dropout": 0.0, "init_std": 0.2}
    if family == "encoder":
        table["objective"]["rate"] = 0.5  # of rows with more or fewer special tokens
    made = runs.build(table)
    run = runs.begin(made, text, folder)
    tokenizer, prepared = corpus(Run(run), runs.stage)
    return set_up_training(made, tokenizer, prepared)


EVEN = ("transformer_xl", "xlnet")  # every row of a stream has as many predictions


def gradient(
    setup: TrainingSetup, micro_batch: int, workers: int = 1
) -> tuple[torch.Tensor, list[int]]:
    """Return what a step subtracts, and the number of predictions of each micro-batch."""
    feed = dataclasses.replace(setup.feed, workers=workers, micro_batch=micro_batch)
    batches = feed.micro_batches(0)
    return runs.gradient(setup, batches, workers), [int(b.weights.sum()) for b in batches]


@pytest.mark.product(few=3)
@pytest.mark.parametrize("family", runs.FAMILIES)
def test_micro_batches_give_the_same_gradient(family: str, text: Path, tmp_path: Path) -> None:
    setup = ready(text, tmp_path / "run", family, batch=8)
    whole, (count,) = gradient(setup, 8)
    assert whole.norm() > 0.01
    for micro in (1, 2, 3, 4):
        split, counts = gradient(setup, micro)
        assert sum(counts) == count
        if micro == 1 and family not in EVEN:
            assert len(set(counts)) > 1  # rows differ, so a mean of means would be wrong
        torch.testing.assert_close(split, whole, rtol=1e-4, atol=1e-6)
    for micro, workers, pieces in ((8, 2, 2), (8, 3, 3), (4, 2, 4), (3, 2, 6)):
        split, counts = gradient(setup, micro, workers)
        assert (len(counts), sum(counts)) == (pieces, count)
        torch.testing.assert_close(split, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.product(few=3)
@pytest.mark.parametrize("family", [*runs.FAMILIES, *runs.VARIANTS])
def test_workers_take_the_same_step_each_time(family: str, text: Path, tmp_path: Path) -> None:
    """Each micro-batch has its own seed for dropout; torch's global generator is not used."""
    made = runs.recipe(family, batch=4, micro_batch=4)
    text = runs.text_for(family, text, tmp_path / "text")
    tokenizer, prepared = corpus(Run(runs.begin(made, text, tmp_path / "run")), runs.stage)
    setup = set_up_training(made, tokenizer, prepared)
    setup.model.train()
    batches = setup.feed.micro_batches(0)
    assert len(batches) == setup.recipe.train.threads == 2
    state = torch.get_rng_state()
    first = runs.gradient(setup, batches, workers=2)
    assert torch.equal(torch.get_rng_state(), state)
    for workers in (2, 2, 1):
        assert torch.equal(runs.gradient(setup, batches, workers), first)


@pytest.mark.parametrize(("workers", "keeps"), [(1, True), (2, False)])
def test_autocast_caches_weights_on_one_thread_only(workers: int, keeps: bool) -> None:
    """Autocast's cache is shared by threads, and cleared by the first that leaves it."""
    model, cached = Line(), []

    def loss_fn(batch: Batch) -> Loss:
        assert torch.is_autocast_enabled("cpu")
        cached.append(torch.is_autocast_cache_enabled())
        return Loss(model.weight.sum(), torch.tensor(1.0))

    empty = Batch(torch.zeros(1, 1), torch.zeros(1, 1), None)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(2):
        train_step(
            model,
            optimizer,
            [empty] * 2,
            loss_fn,
            range(2),
            StepOptions(0.0, torch.bfloat16, accumulate=accumulate_on(workers)),
        )
    assert cached == [keeps] * 4


class Twins(nn.Module):
    """Two parameters whose gradients autograd hands out as one tensor, and one it only views."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
        self.c = nn.Parameter(torch.ones(2, 3))


def test_gradients_that_share_storage_are_scaled_once() -> None:
    model = Twins()
    x = torch.tensor([1.0, 2.0, 3.0])

    def loss_fn(batch: Batch) -> Loss:
        return Loss(((model.a + model.b) * x).sum() + model.c.sum(), torch.tensor(2.0))

    def update(batches: int) -> None:
        train_step(
            model,
            torch.optim.SGD(model.parameters(), lr=1.0),
            [Batch(torch.zeros(1, 1), torch.zeros(1, 1), None)] * batches,
            loss_fn,
            range(batches),
            StepOptions(clip=0.0),
        )

    for batches in (1, 2):
        before = [p.detach().clone() for p in model.parameters()]
        update(batches)
        a, b, c = (old - p for old, p in zip(before, model.parameters(), strict=True))
        torch.testing.assert_close(a, x / 2)
        torch.testing.assert_close(b, x / 2)
        torch.testing.assert_close(c, torch.full((2, 3), 0.5))


def test_a_mean_of_row_means_differs_from_the_gradient(text: Path, tmp_path: Path) -> None:
    setup = ready(text, tmp_path / "run", batch=8)
    whole, _ = gradient(setup, 8)
    feed = dataclasses.replace(setup.feed, micro_batch=1)
    means = []
    for batch in feed.micro_batches(0):
        one = setup.recipe.objective.loss(setup.model, batch.to("cpu"))
        grads = torch.autograd.grad(one.total / one.count, list(setup.model.parameters()))
        means.append(torch.cat([g.flatten() for g in grads]))
    difference = (torch.stack(means).mean(0) - whole).norm() / whole.norm()
    assert difference > 0.01


def test_batch_tokens_gives_the_rows_of_a_step() -> None:
    assert runs.recipe(batch_tokens=100).rows_per_step == 6  # rows of 16
    assert runs.recipe(batch_tokens=1).rows_per_step == 1
    assert runs.recipe(batch=5).rows_per_step == 5


class Line(nn.Module):
    """A model with loss weight * x, whose gradients are known."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([3.0, 4.0]))


def step(model: Line, gradients: list[float], count: float, clip: float = 0.0) -> object:
    def loss_fn(batch: Batch) -> Loss:
        total = (model.weight * torch.tensor(gradients)).sum()
        return Loss(total, torch.tensor(count))

    empty = Batch(torch.zeros(1, 1), torch.zeros(1, 1), None)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return train_step(model, optimizer, [empty], loss_fn, [0], StepOptions(clip=clip))


def test_clipping_shortens_the_mean_gradient() -> None:
    model = Line()
    result = step(model, [30.0, 40.0], count=10.0, clip=1.0)
    assert result.grad_norm == pytest.approx(5.0)  # of the mean, before clipping
    torch.testing.assert_close(model.weight.data, torch.tensor([2.4, 3.2]), rtol=1e-5, atol=0)
    model = Line()
    step(model, [3.0, 4.0], count=10.0, clip=1.0)  # shorter than that: left alone
    torch.testing.assert_close(model.weight.data, torch.tensor([2.7, 3.6]))


def test_a_step_without_predictions_changes_nothing() -> None:
    model = Line()
    empty = Batch(torch.zeros(1, 1), torch.zeros(1, 1), None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, weight_decay=0.5)
    result = train_step(
        model,
        optimizer,
        [empty],
        lambda batch: Loss(model.weight.sum() * 0, torch.tensor(0.0)),
        [0],
    )
    assert (result.count, result.is_finite) == (0, False)
    assert torch.equal(model.weight.data, torch.tensor([3.0, 4.0]))
    assert not optimizer.state


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_changes_no_weight(bad: float) -> None:
    model = Line()
    result = step(model, [bad, 1.0], count=1.0, clip=1.0)
    assert not result.is_finite
    torch.testing.assert_close(model.weight.data, torch.tensor([3.0, 4.0]))
    assert model.weight.grad is None


def test_a_finite_loss_with_an_infinite_gradient_is_skipped() -> None:
    model = Line()
    model.weight.register_hook(lambda grad: grad * float("inf"))
    result = step(model, [1.0, 1.0], count=1.0)
    assert result.loss == 7.0
    assert not result.is_finite
    torch.testing.assert_close(model.weight.data, torch.tensor([3.0, 4.0]))


def test_evaluation_changes_neither_mode_nor_gradients(text: Path, tmp_path: Path) -> None:
    setup = ready(text, tmp_path / "run")
    setup.model.train()
    loss_fn = partial(setup.recipe.objective.loss, setup.model)
    whole = evaluate(setup.model, setup.feed.micro_batches(0), loss_fn, torch.float32)
    many = dataclasses.replace(setup.feed, micro_batch=1)
    split = evaluate(setup.model, many.micro_batches(0), loss_fn, torch.float32)
    assert (split.total, split.count) == pytest.approx((whole.total, whole.count), rel=1e-5)
    assert split.components == whole.components == {}
    assert setup.model.training
    assert all(p.grad is None for p in setup.model.parameters())


def test_evaluating_keeps_a_frozen_part_in_evaluation_mode() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Linear(2, 2))
    model.train()
    model[1].eval()

    def loss_fn(batch: Batch) -> Loss:
        assert not any(module.training for module in model.modules())
        return Loss(model(torch.zeros(1, 2)).sum(), torch.tensor(1.0))

    empty = Batch(torch.zeros(1, 1), torch.zeros(1, 1), None)
    evaluate(model, [empty], loss_fn, torch.float32)
    assert [module.training for module in model.modules()] == [True, True, False, True]
