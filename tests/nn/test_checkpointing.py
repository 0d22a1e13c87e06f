"""Activations computed again are those computed first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from foreword.errors import UserError
from foreword.nn.checkpointing import Checkpointing, checkpoint_blocks
from foreword.runs.activation_bytes import ActivationCounter
from foreword.runs.corpus import corpus
from foreword.runs.run_folder import Run
from foreword.runs.setup import TrainingSetup, set_up_training, step_flops
from tests.train import runs

FAMILIES = ["decoder", "encoder_decoder", "albert", "xlnet", "transformer_xl", "longformer"]
FAMILIES += ["bigbird", "linformer"]


def set_up(family: str, folder: Path, checkpointing: str = "none") -> TrainingSetup:
    made = runs.recipe(family, threads=1, activation_checkpointing=checkpointing)
    text = runs.text_for(family, runs.write_text(folder / "text"), folder / "texts")
    setup = set_up_training(made, *corpus(Run(runs.begin(made, text, folder / "run")), runs.stage))
    setup.model.train()
    return setup


def kept(setup: TrainingSetup, amount: Checkpointing) -> float:
    """Return the bytes of activations that backward needs."""
    tracker = ActivationCounter(setup.model, [amount])
    with tracker:
        setup.loss_fn(setup.feed.micro_batches(0)[0].to("cpu"))
    return tracker.kept(amount).activations


@pytest.mark.product
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_with_dropout_are_those_without_checkpointing(
    family: str, tmp_path: Path
) -> None:
    """Bit for bit, and with the FLOPs of computing once."""
    setup = set_up(family, tmp_path)
    batches = setup.feed.micro_batches(0)
    expected, flops = runs.gradient(setup, batches), step_flops(setup)
    saved = [kept(setup, "none")]
    amounts: list[Checkpointing] = ["selective", "full"]
    for amount in amounts:
        for module in setup.model.modules():
            vars(module).pop("forward", None)
        assert checkpoint_blocks(setup.model, amount)
        assert torch.equal(runs.gradient(setup, batches), expected)
        assert step_flops(setup) == flops
        saved.append(kept(setup, amount))
    assert saved[0] > max(saved[1:])


def test_weights_that_blocks_share_are_cast_to_bf16_in_each(tmp_path: Path) -> None:
    setup = replace(set_up("albert", tmp_path), dtype=torch.bfloat16)
    batches = setup.feed.micro_batches(0)
    expected = runs.gradient(setup, batches)
    checkpoint_blocks(setup.model, "selective")
    assert torch.allclose(runs.gradient(setup, batches), expected, atol=0.01 * expected.abs().max())


def test_a_model_without_blocks_refuses_checkpointing(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"train.activation_checkpointing=full: this model has no Transformer"
    ):
        set_up("lstm", tmp_path, "full")
