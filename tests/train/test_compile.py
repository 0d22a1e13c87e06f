"""Blocks are compiled, without graph breaks, and within torch's limit of recompilations.

A backend that runs the graphs as they are stands for the compiler, which would take minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from foreword.nn.block import Block
from foreword.runs import setup
from foreword.runs.corpus import corpus
from foreword.runs.dry_run import dummy_vocab
from foreword.runs.run_folder import Run
from foreword.runs.setup import TrainingSetup, compile_blocks, resolve_auto, set_up_training
from foreword.train import flops
from foreword.train.step import train_step
from tests.train import runs

# name: graphs of its three blocks, and of the decoder's three
GRAPHS = {"encoder": 1, "encoder_decoder": 2, "delta": 2, "transformer_xl": 3}  # the last by layer


class Counted:
    """A compiler that counts the graphs it is given, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.graphs += 1
        return graph.forward


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    """Stands for the compiler of all blocks; a graph that breaks is an error."""
    counted, own = Counted(), Block.compile
    monkeypatch.setattr(Block, "compile", lambda block: own(block, backend=counted, fullgraph=True))
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=8):
        yield counted
    torch._dynamo.reset()


def three_blocks(family: str, text: Path, folder: Path) -> TrainingSetup:
    table = runs.table(family, batch=2, micro_batch=2, threads=1)
    table["model"] |= {"dropout": 0.0, "attention_dropout": 0.0, "layers": 3}  # ours is numpy's
    made = runs.build(table)
    run = runs.begin(made, runs.text_for(family, text, folder / "text"), folder / "run")
    return set_up_training(made, *corpus(Run(run), runs.stage))


def step(setup: TrainingSetup, number: int) -> float:
    loss_fn = partial(setup.recipe.objective.loss, setup.model)
    batches = setup.feed.micro_batches(number)
    seeds = range(len(batches))
    optimizer = torch.optim.SGD(setup.model.parameters(), lr=0.1)
    return train_step(setup.model, optimizer, batches, loss_fn, seeds).loss


@pytest.mark.product(few=1)
@pytest.mark.parametrize("family", GRAPHS)
def test_compiled_blocks_have_one_graph_each_and_equal_losses(
    family: str, text: Path, tmp_path: Path, compiler: Counted
) -> None:
    plain, compiled = (three_blocks(family, text, tmp_path / name) for name in "ab")
    compile_blocks(compiled.model)
    expected = [step(plain, 0) for _ in range(2)]
    assert [step(compiled, 0) for _ in range(2)] == pytest.approx(expected, rel=1e-4)
    assert compiler.graphs == GRAPHS[family]


@pytest.mark.full
def test_counting_flops_does_not_prevent_compilation(
    text: Path, tmp_path: Path, compiler: Counted
) -> None:
    """Every run counts before its first step; Dynamo skips functions seen under a dispatch mode."""
    setup = three_blocks("encoder", text, tmp_path)
    compile_blocks(setup.model)
    loss_fn = partial(setup.recipe.objective.loss, setup.model)
    assert flops.count(setup.model, setup.feed.micro_batches(0)[0], loss_fn) > 0
    assert compiler.graphs == 0
    step(setup, 0)
    assert compiler.graphs == 1


def test_the_recompile_limit_allows_a_graph_for_each_layer(compiler: Counted) -> None:
    table = runs.table("transformer_xl")
    table["model"]["layers"] = 12
    recipe = runs.build(table)
    with torch.device("meta"):
        compile_blocks(recipe.build(dummy_vocab(recipe.tokenizer)))
    assert torch._dynamo.config.recompile_limit >= 2 * 12  # in training and in evaluation


@pytest.mark.parametrize(("has_triton", "expected"), [(True, "on"), (False, "off")])
def test_blocks_are_compiled_by_default_if_triton_is_installed(
    has_triton: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "has_triton", lambda: has_triton)
    made = runs.recipe(micro_batch=4)
    assert resolve_auto(made, torch.device("cuda"), torch.bfloat16).train.compile == expected
    assert resolve_auto(made, torch.device("cpu"), torch.bfloat16).train.compile == "off"
