"""Plans for GPUs you do not have: published facts, and which ways fit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from foreword.errors import UserError
from foreword.planning.gpus import find_gpu, shipped
from foreword.planning.plan import Assumptions, Plan, _Planner, plan
from foreword.runs.dry_run import dummy_vocab
from foreword.runs.recipe import load_recipe
from foreword.runs.setup import build_model
from foreword.runs.sizes import count_parameters, count_state
from foreword.train.parallel.fsdp import FSDP
from tests.train.test_division import CPU, process

SMALL = ["tokenizer.vocab=400", "model.layers=1"]


@pytest.fixture(scope="module")
def gpt3() -> Plan:
    """As Narayanan et al. 2021, section 5.1, but for parallelism and a batch that suits it."""
    recipe = load_recipe("gpt3_175b", ["train.batch=2048", "train.batch_tokens=0"])
    return plan(recipe, find_gpu("a100-80")[1], 1024, Assumptions(utilisation=140 / 312))


@pytest.mark.full
def test_gpt3_takes_the_published_operations_and_state(gpt3: Plan) -> None:
    """Brown et al. 2020, table D.1: 3.14e23 FLOPs for 300 B tokens of 174.6 B parameters."""
    parameters = sum(gpt3.parameters.values())
    tokens = gpt3.steps * gpt3.tokens_per_step
    assert 6 * parameters * tokens == pytest.approx(3.14e23, rel=0.005)
    assert gpt3.flops_per_step * gpt3.steps == pytest.approx(3.14e23, rel=0.03)  # with attention
    copies = [setting.memory for setting in gpt3.settings if setting.kind == "ddp"]
    assert copies[0].weights + copies[0].optimizer == pytest.approx(12 * 174.6e9, rel=0.001)
    assert copies[0].gradients == 2 * copies[0].weights  # of DDP's buckets, and their sum
    assert gpt3.checkpoint_bytes == pytest.approx(12 * 174.6e9, rel=0.001)
    assert gpt3.copy_bytes == pytest.approx(gpt3.checkpoint_bytes / 128)  # nodes of 8


def test_gpt3_fits_only_as_shards_with_blocks_computed_again(gpt3: Plan) -> None:
    fitting = [(setting.kind, setting.checkpointing) for setting in gpt3.settings if setting.fits]
    assert fitting == [("fsdp", "full")]
    assert gpt3.best.kind == "fsdp"


def test_a_small_model_needs_no_shards() -> None:
    recipe, gpu = load_recipe("gpt2_tiny", SMALL), find_gpu("rtx4090,bf16_tflops=0.1")[1]
    alone = plan(recipe, gpu, 1, Assumptions())
    assert [setting.kind for setting in alone.settings] == ["none"] * 3
    assert (alone.best.checkpointing, alone.best.micro_batch) == ("none", recipe.rows_per_step)
    many = plan(recipe, gpu, 4, Assumptions())
    assert many.best.kind == "ddp"
    assert many.copy_bytes == many.checkpoint_bytes  # the first process writes
    shards = {setting.kind: setting.memory.optimizer for setting in many.settings}
    assert shards["fsdp"] == pytest.approx(shards["ddp"] / 4, abs=4)
    nodes = plan(recipe, gpu, 16, Assumptions())
    shards = {setting.kind: setting.memory.optimizer for setting in nodes.settings}
    assert shards["hsdp"] == pytest.approx(shards["ddp"] / 8, abs=4)


@pytest.mark.full
def test_time_follows_utilisation_and_price_the_time() -> None:
    recipe, gpu = load_recipe("gpt2_tiny", SMALL), find_gpu("memory_gb=16,bf16_tflops=0.01")[1]
    slow, fast = (plan(recipe, gpu, 2, Assumptions(u, price=3)) for u in (0.2, 0.4))
    assert slow.best.compute_seconds == pytest.approx(2 * fast.best.compute_seconds)
    step = fast.flops_per_step / (2 * 0.4 * 1e10)
    assert fast.best.compute_seconds == pytest.approx(step)
    assert fast.dollars == pytest.approx(24 * fast.days * 2 * 3)
    assert plan(recipe, gpu, 2, Assumptions()).dollars is None


def test_a_recurrent_model_has_no_blocks_to_compute_again() -> None:
    made = plan(load_recipe("lstm_tiny", SMALL), find_gpu("v100")[1], 1, Assumptions())
    assert [setting.checkpointing for setting in made.settings] == ["none"]


def test_gpt3_takes_the_published_days(gpt3: Plan) -> None:
    """Narayanan et al. 2021: 34 days at 140 TFLOP/s with blocks computed again, sending apart."""
    assert gpt3.best.checkpointing == "full"
    assert gpt3.best.compute_seconds * gpt3.steps / 86_400 == pytest.approx(34, rel=0.03)


def test_the_recipe_restricts_what_is_planned() -> None:
    settings = [
        *SMALL,
        "parallel.kind=hsdp",
        "parallel.group=2",
        "train.activation_checkpointing=selective",
    ]
    made = plan(
        load_recipe("gpt2_tiny", settings), find_gpu("h100,per_node=4")[1], 8, Assumptions()
    )
    [only] = made.settings
    assert (only.kind, only.checkpointing) == ("hsdp", "selective")
    assert only.memory.weights == 4 * sum(made.parameters.values()) // 2


@pytest.mark.full
def test_a_plan_that_does_not_fit_says_on_how_many_gpus_it_would() -> None:
    recipe, gpu = load_recipe("gpt2_tiny", SMALL), find_gpu("h100")[1]
    eight = min(setting.memory.total for setting in plan(recipe, gpu, 8, Assumptions()).settings)
    made = plan(recipe, replace(gpu, memory_gb=(eight + 1) / 1e9), 2, Assumptions())
    assert not made.best.fits
    assert made.fits_on == 8


def test_more_gpus_than_rows_are_refused() -> None:
    recipe = load_recipe("gpt2_tiny", SMALL)
    with pytest.raises(UserError, match=r"--gpus: a step of \d+ rows .* 10,000,000 GPUs"):
        plan(recipe, find_gpu("h100")[1], 10_000_000, Assumptions())


def test_muon_keeps_one_number_of_matrices_and_two_of_embeddings() -> None:
    recipe = load_recipe("gpt2_tiny", [*SMALL, "optimizer.kind=muon"])
    model = recipe.build(dummy_vocab(recipe.tokenizer))
    optimizer = recipe.optimizer.build(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    tensors = [t for state in optimizer.state.values() for t in state.values()]
    kept = sum(t.numel() for t in tensors if isinstance(t, torch.Tensor) and t.dim())
    assert count_state(recipe) == kept


@pytest.mark.parametrize("family", ["gpt2", "t5", "albert", "lstm"])
def test_a_plan_gathers_for_a_whole_step_what_is_gathered(family: str) -> None:
    recipe = load_recipe(f"{family}_tiny", ["tokenizer.vocab=400", "model.layers=2"])
    with process(0, 2):
        divided: Any = build_model(recipe, dummy_vocab(recipe.tokenizer), CPU, FSDP())
    root = divided._get_fsdp_state()._fsdp_param_group.fsdp_params
    outside = sum(param._orig_size.numel() for param in root)
    parameters = count_parameters(recipe)
    planner = _Planner(recipe, find_gpu("h100")[1], 2, Assumptions(), parameters, 0, None)  # type: ignore[arg-type]
    assert planner.outside == pytest.approx(
        outside, rel=0.2
    )  # positions, the norm after the blocks


def test_every_shipped_gpu_has_a_source_and_possible_numbers() -> None:
    for name in shipped():
        gpu = find_gpu(name)[1]
        assert gpu.source
        assert 8 <= gpu.memory_gb <= 300
        assert gpu.network_gb_s <= gpu.link_gb_s <= gpu.bandwidth_gb_s
        assert math.isfinite(gpu.flops_per_second)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("h10", "there is no 'h10'"),
        ("h10", "did you mean 'h100'?"),
        ("memory_gb=3", "bf16_tflops"),
        ("h100,memory=3", "did you mean 'memory_gb'?"),
        ("h100,memory_gb=-3", "memory_gb"),
        ("memory_gb=3,bf16_tflops=0", "fp32_tflops too"),
    ],
)
def test_a_gpu_that_is_none_is_refused(words: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        find_gpu(words)
    assert str(caught.value).startswith("--gpu: ")
    assert message in str(caught.value)


def test_numbers_of_a_known_gpu_can_be_changed() -> None:
    assert find_gpu("h100,memory_gb=96")[1].memory_gb == 96
    assert find_gpu("H100")[1] == find_gpu("h100")[1]
