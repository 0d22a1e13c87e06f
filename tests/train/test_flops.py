"""The FLOPs of a step: those of torch's own counter, and of operations that it does not know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from foreword.nn.attention import dense_only
from foreword.objectives._contract import ModelWithLoss
from foreword.runs.corpus import corpus
from foreword.runs.dry_run import dummy_example, dummy_vocab
from foreword.runs.recipe import Recipe, load_recipe
from foreword.runs.run_folder import Run
from foreword.runs.setup import set_up_training
from foreword.train import flops
from foreword.train.flops import recurrences_without_onednn
from tests.train import runs

VOCAB, LONG = 400, 544  # more keys than attention by hand takes on the CPU


@pytest.mark.product(few=1)
@pytest.mark.parametrize("family", ["bigbird", "encoder_decoder", "lstm"])
def test_flops_equal_those_of_torchs_counter(family: str, text: Path, tmp_path: Path) -> None:
    made = runs.recipe(family)
    tokenizer, prepared = corpus(Run(runs.begin(made, text, tmp_path / "run")), runs.stage)
    setup = set_up_training(made, tokenizer, prepared)
    batch = setup.feed.micro_batches(0)[0].to(setup.device)
    memory = setup.loss_fn(batch).memory  # of a row that has one
    with recurrences_without_onednn(), dense_only(), FlopCounterMode(display=False) as counter:
        setup.loss_fn(replace(batch, memory=memory)).total.backward()
    setup.model.zero_grad(set_to_none=True)
    assert flops.count(setup.model, batch, setup.loss_fn) == counter.get_total_flops()
    assert all(parameter.grad is None for parameter in setup.model.parameters())


def counted(recipe: Recipe) -> tuple[int, nn.Module]:
    vocab = dummy_vocab(recipe.tokenizer)
    model = recipe.build(vocab)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    batch = recipe.layout.arrange(dummy_example(recipe, vocab), vocab)
    return flops.count(model, batch, ModelWithLoss(model, recipe.objective)), model


def test_causal_attention_over_long_rows_is_counted_on_the_cpu() -> None:
    settings = [f"tokenizer.vocab={VOCAB}", "model.layers=1", "model.attention_dropout=0"]
    settings += [f"packing.length={LONG}", f"model.position.length={LONG}"]
    recipe = load_recipe("gpt2_tiny", settings)
    operations, model = counted(recipe)
    width = recipe.model.d_model  # type: ignore[attr-defined]
    products = sum(
        p.numel() for n, p in model.named_parameters() if p.ndim == 2 and "position" not in n
    )
    attention = 12 * LONG**2 * width
    assert operations == pytest.approx(6 * products * LONG + attention, rel=0.01)


def test_an_lstm_is_counted_with_onednn() -> None:
    recipe = load_recipe("lstm_tiny", [f"tokenizer.vocab={VOCAB}", "model.layers=1"])
    operations, model = counted(recipe)
    cells = sum(p.numel() for n, p in model.named_parameters() if "core.weight" in n)
    assert operations > 0.9 * 6 * cells * recipe.packing.length
    assert torch._C._get_mkldnn_enabled()


def test_only_recurrences_are_counted_without_onednn() -> None:
    """Without it, products in bf16 take many times as long."""
    seen = {}

    def note(module: nn.Module, *_: object) -> None:
        seen[type(module)] = torch._C._get_mkldnn_enabled()

    linear, lstm = nn.Linear(2, 2), nn.LSTM(2, 2)
    for module in (linear, lstm):
        module.register_forward_pre_hook(note)  # called after those of all modules
    with flops.recurrences_without_onednn():
        lstm(linear(torch.zeros(1, 2)))
    assert seen == {nn.Linear: True, nn.LSTM: False}
    assert torch._C._get_mkldnn_enabled()
