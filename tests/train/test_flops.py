"""The FLOPs of a step are those of torch's own counter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from torch.utils.flop_counter import FlopCounterMode

from foreword.nn.attention import dense_only
from foreword.runs.corpus import corpus
from foreword.runs.setup import set_up_training
from foreword.train import flops
from tests.train import runs


@pytest.mark.parametrize("family", ["bigbird", "encoder_decoder", "lstm"])
def test_flops_equal_those_of_torchs_counter(family: str, text: Path, tmp_path: Path) -> None:
    made = runs.recipe(family)
    tokenizer, prepared = corpus(made, runs.begin(made, text, tmp_path / "run"), runs.stage)
    setup = set_up_training(made, tokenizer, prepared)
    batch = setup.feed.micro_batches(0)[0].to(setup.device)
    memory = setup.loss_fn(batch).memory  # of a row that has one
    with dense_only(), FlopCounterMode(display=False) as counter:
        setup.loss_fn(replace(batch, memory=memory)).total.backward()
    setup.model.zero_grad(set_to_none=True)
    assert flops.count(setup.model, batch, setup.loss_fn) == counter.get_total_flops()
    assert all(parameter.grad is None for parameter in setup.model.parameters())
