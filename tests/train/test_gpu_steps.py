"""Steps of every family, generation and fine-tuning on a GPU equal those on the CPU."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import foreword
from foreword.nn.cross_entropy import cross_entropy
from foreword.nn.masks import DocumentMask
from foreword.runs.corpus import corpus
from foreword.runs.run_folder import Run, open_run
from foreword.runs.setup import TrainingSetup, compile_blocks, set_up_training
from foreword.train.step import StepOptions, train_step
from foreword.tuning.settings import TuneSettings
from foreword.tuning.strategies.full import Full
from foreword.tuning.tasks.classify import Classify
from foreword.types import PairLabels
from tests.train import runs
from tests.tuning.runs import make_run, reviews, tune

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DEVICE = "cuda"


def build(
    family: str, text: Path, folder: Path, device: str, dropout: float = 0.0
) -> TrainingSetup:
    table = runs.table(family, batch=4, micro_batch=2, threads=1, device=device)
    table["model"] |= {"d_model": 64, "dropout": dropout}
    if table["model"]["kind"] in ("transformer", "encoder_decoder"):
        table["model"]["attention_dropout"] = dropout
    made = runs.build(table)
    run = runs.begin(made, runs.text_for(family, text, folder / "text"), folder / "run")
    return set_up_training(made, *corpus(Run(run), runs.stage))


def losses(setup: TrainingSetup, dtype: torch.dtype, steps: int = 3) -> list[float]:
    loss_fn = partial(setup.recipe.objective.loss, setup.model)
    optimizer = torch.optim.AdamW(setup.model.parameters(), lr=1e-3, fused=True)
    setup.model.train()
    losses = []
    for number in range(steps):
        batches = setup.feed.micro_batches(number)
        seeds = range(len(batches))
        options = StepOptions(dtype=dtype)
        step = train_step(setup.model, optimizer, batches, loss_fn, seeds, options)
        assert step.is_finite
        losses.append(step.loss)
    return losses


@pytest.mark.parametrize("family", [*runs.FAMILIES, *runs.VARIANTS])
def test_gpu_steps_have_the_losses_of_the_cpu(family: str, text: Path, tmp_path: Path) -> None:
    expected = losses(build(family, text, tmp_path / "cpu", "cpu"), torch.float32)
    exact = losses(build(family, text, tmp_path / "fp32", DEVICE), torch.float32)
    assert exact == pytest.approx(expected, rel=2e-3)
    low = losses(build(family, text, tmp_path / "bf16", DEVICE), torch.bfloat16)
    assert low == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("family", ["bert", "decoder", "encoder_decoder", "transformer_xl"])
def test_compiled_steps_have_the_losses_of_the_cpu(
    family: str, dropout: float, text: Path, tmp_path: Path
) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    of = build(family, text, tmp_path / DEVICE, DEVICE, dropout)
    compile_blocks(of.model)
    actual = losses(of, torch.bfloat16)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    expected = losses(build(family, text, tmp_path / "cpu", "cpu", dropout), torch.float32)
    assert actual == pytest.approx(expected, rel=0.1 if dropout else 0.02)


@pytest.mark.parametrize("family", ["encoder", "encoder_decoder"])
def test_dropout_depends_on_the_seed_only(family: str, text: Path, tmp_path: Path) -> None:
    of = build(family, text, tmp_path, DEVICE, dropout=0.3)
    of.model.train()
    batches = of.feed.micro_batches(0)
    first = runs.gradient(of, batches)
    torch.rand(7, device=DEVICE)
    torch.testing.assert_close(runs.gradient(of, batches), first, rtol=1e-4, atol=1e-6)


def test_a_batch_is_equal_after_its_transfer(text: Path, tmp_path: Path) -> None:
    batch = build("bert", text, tmp_path, DEVICE).feed.micro_batches(0)[0]
    there = [batch.to(torch.device(DEVICE)) for _ in range(20)]  # pinned memory is used again
    for sent in there:
        assert sent.ids.device.type == DEVICE
        for name in ("ids", "positions", "targets", "weights", "segments"):
            assert torch.equal(getattr(sent, name).cpu(), torch.from_numpy(getattr(batch, name)))
        labels = batch.require(PairLabels).labels
        assert torch.equal(sent.require(PairLabels).labels.cpu(), torch.from_numpy(labels))
        if isinstance(batch.mask, DocumentMask):
            assert sent.mask.sees_itself


@pytest.mark.parametrize("vocab", [30_522, 50_257, 32_128])
@pytest.mark.parametrize("has_bias", [False, True])
def test_the_fused_softmax_equals_torchs_cross_entropy(vocab: int, has_bias: bool) -> None:
    random = torch.Generator().manual_seed(1)
    states = torch.randn(300, 64, generator=random).to(DEVICE).requires_grad_()
    weight = (0.05 * torch.randn(vocab, 64, generator=random)).to(DEVICE).requires_grad_()
    bias = torch.randn(vocab, generator=random).to(DEVICE).requires_grad_() if has_bias else None
    targets = torch.randint(0, vocab, (300,), generator=random).to(DEVICE)
    leaves = [leaf for leaf in (states, weight, bias) if leaf is not None]
    expected = F.cross_entropy(F.linear(states, weight, bias), targets, reduction="sum")
    grads = torch.autograd.grad(expected, leaves)
    for dtype, near in ((torch.float32, 1e-4), (torch.bfloat16, 0.02)):
        with torch.autocast(DEVICE, dtype, enabled=dtype != torch.float32):
            actual = cross_entropy(states, weight, bias, targets, torch.ones(300, device=DEVICE))
        torch.testing.assert_close(actual, expected, rtol=near, atol=0.0)
        for grad, good in zip(torch.autograd.grad(actual, leaves), grads, strict=True):
            assert (grad - good).norm() < near * good.norm()
        with torch.no_grad(), torch.autocast(DEVICE, dtype, enabled=dtype != torch.float32):
            again = cross_entropy(states, weight, bias, targets, torch.ones(300, device=DEVICE))
        torch.testing.assert_close(again, expected, rtol=near, atol=0.0)


@pytest.mark.parametrize("layout", ["decoder", "prefix", "encoder_decoder", "recurrent"])
def test_the_gpu_generates_the_text_of_the_cpu(layout: str, tmp_path: Path) -> None:
    run = make_run(tmp_path, layout)
    here, there = (foreword.load(run, device) for device in ("cpu", DEVICE))
    settings = {"temperature": 0, "tokens": 6}
    assert there.generate("the film was", **settings) == here.generate("the film was", **settings)


@pytest.mark.parametrize("layout", ["encoder", "decoder", "encoder_decoder"])
def test_fine_tuning_learns_on_a_gpu(layout: str, tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, layout), DEVICE)
    settings = TuneSettings(strategy=Full(lr=3e-3), seeds=1, epochs=4)
    result = tune(trained, Classify(), reviews(300, 1), reviews(100, 2), settings)
    assert result.rows[0]["accuracy"] > 0.9
