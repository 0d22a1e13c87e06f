"""The bytes and FLOPs of a step, counted on fake tensors, against real ones and published ones."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from foreword.models.transformer import Transformer
from foreword.nn.attention import AttentionInputs, PreparedMask
from foreword.nn.attentions.dense import DenseAttention
from foreword.nn.block import Block
from foreword.nn.checkpointing import AMOUNTS, Checkpointing
from foreword.nn.init import initialise, shapes_only
from foreword.nn.positions._contract import AttentionPositions
from foreword.objectives._contract import ModelWithLoss
from foreword.runs.activation_bytes import ActivationCounter
from foreword.runs.counted import _period, count_step, fake_tensors
from foreword.runs.dry_run import dummy_example, dummy_vocab, shallow
from foreword.runs.gpu_kernels import gpu_kernels
from foreword.runs.recipe import Recipe, load_recipe
from foreword.runs.setup import build_model
from foreword.train import flops
from foreword.train.device import autocast
from foreword.train.flops import recurrences_without_onednn
from foreword.types import Batch, TermCounts
from tests.held import Held

ROWS = 3
CPU = torch.device("cpu")
FAMILIES = ["bert", "gpt2", "t5", "electra", "albert", "lstm", "transformer_xl", "xlnet"]
SMALL = ["tokenizer.vocab=400", "model.layers=1"]


def dummy_batch(recipe: Recipe, rows: int) -> Batch:
    vocab = dummy_vocab(recipe.tokenizer)
    batch = recipe.layout.arrange(dummy_example(recipe, vocab, rows), vocab)
    counts = recipe.objective.count_terms(batch)
    return batch if counts is None else batch.with_part(TermCounts(counts))


def test_few_layers_have_the_first_dense_one() -> None:
    late = ["model.layers=99", "model.dense_every=2", "model.first_dense=30"]
    recipe = load_recipe("hybrid_decoder_tiny", late)
    assert shallow(recipe)[0].model.attention_of(30).is_dense
    assert _period(recipe) == 32


@pytest.mark.product(only=("bert",))
@pytest.mark.parametrize("family", FAMILIES)
def test_counted_bytes_and_flops_are_those_of_real_tensors(family: str) -> None:
    recipe = load_recipe(
        f"{family}_tiny", [*SMALL, *(["packing.length=8"] if family == "lstm" else [])]
    )
    model = recipe.build(dummy_vocab(recipe.tokenizer)).train()
    initialise(model, 1)
    loss_fn, tracker = ModelWithLoss(model, recipe.objective), ActivationCounter(model)
    batch = dummy_batch(recipe, ROWS).to("cpu")
    with recurrences_without_onednn():  # its LSTM keeps a work space of its own
        for _ in range(2):  # the second time with a memory, if there is one
            with tracker, autocast(CPU, torch.bfloat16):
                loss = loss_fn(batch)
            batch = replace(batch, memory=loss.memory)
        operations = flops.count(model, dummy_batch(recipe, 1), loss_fn)
        counted = count_step(recipe, on_gpu=False)
    measured = tracker.kept("none")
    fixed, each = counted.kept["none"]
    assert fixed.activations + ROWS * each.activations == pytest.approx(
        measured.activations, rel=0.07
    )
    assert fixed.head + ROWS * each.head == pytest.approx(measured.head, rel=0.01)
    assert counted.flops_per_row == pytest.approx(operations, rel=0.05)


@pytest.mark.full
def test_recomputing_keeps_less_activations() -> None:
    kept = count_step(load_recipe("t5_base", ["model.layers=2"])).kept
    each = {mode: kept[mode][1].activations for mode in AMOUNTS}
    assert each["full"] < each["selective"] < each["none"]


@pytest.mark.product
@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("family", ["bert", "t5"])
def test_counted_bytes_are_those_held_between_forward_and_backward(
    family: str, amount: Checkpointing
) -> None:
    recipe = load_recipe(f"{family}_tiny", [*SMALL, f"train.activation_checkpointing={amount}"])
    batch = dummy_batch(recipe, ROWS).to("cpu")
    loss_fn = build_model(recipe, dummy_vocab(recipe.tokenizer), CPU).train()
    tracker = ActivationCounter(loss_fn.model, [amount])
    with tracker, autocast(CPU, torch.bfloat16):
        loss_fn(batch)
    gc.collect()
    with Held() as held, autocast(CPU, torch.bfloat16):
        loss = loss_fn(batch)
    kept, store = tracker.kept(amount), tracker._stores[amount]
    assert loss.total.requires_grad
    counted = kept.activations + kept.head - store.most_inside  # that is computed in backward
    assert counted == pytest.approx(held.now, rel=0.05)


class _Unfused(nn.Module):
    """Position scores of zero: attention is then two products and a softmax, in no fused kernel."""

    def rotate(self, q: Tensor, positions: Tensor) -> Tensor:
        return q

    def scores(self, q: Tensor, k: Tensor, positions: AttentionPositions, layer: int) -> Tensor:
        return q.new_zeros(*q.shape[:3], k.shape[2])


@pytest.mark.product(few=1)
@pytest.mark.parametrize("mode", AMOUNTS)
def test_a_layer_keeps_what_the_formula_of_megatron_says(mode: Checkpointing) -> None:
    """Korthikanti et al. 2022, section 4 and 5: s b h (34 + 5 a s / h), and s b h 2 for the input.

    `selective` keeps the input and what linear maps give: queries, keys and values, the outputs of
    attention and feed-forward (2 each), and what is inside of the latter (8).
    """
    s, b, h, a = 256, 2, 512, 8
    settings = Transformer(d_model=h, heads=a, dropout=0.1, attention_dropout=0.1)
    with ExitStack() as stack:
        stack.enter_context(fake_tensors())
        stack.enter_context(gpu_kernels())
        torch.set_default_dtype(torch.bfloat16)
        stack.callback(torch.set_default_dtype, torch.float32)
        with shapes_only(device="cpu"):
            blocks = nn.ModuleList(
                Block(settings, settings.attention, crosses=False, like=None) for _ in range(3)
            )
        at = torch.arange(s)
        inputs = AttentionInputs(
            PreparedMask(), DenseAttention(), _Unfused(), AttentionPositions(at, s, None), 0
        )  # type: ignore[arg-type]
        kept = []
        for count in (2, 3):  # the third layer alone, without a recomputed one's interior
            tracker = ActivationCounter(nn.ModuleList([*blocks, inputs.mechanism]))
            x = torch.empty(b, s, h, dtype=torch.bfloat16, requires_grad=True)
            with tracker:
                for block in blocks[:count]:
                    x = block(x, inputs)[0]
            kept.append(tracker.kept(mode).activations)
    formula = {"none": 34 + 5 * a * s / h, "selective": 2 + 5 * 2 + 8, "full": 2}[mode]
    # Besides: the mean and deviation of norms, and flags of dropout of the scores by rounding.
    assert kept[1] - kept[0] == pytest.approx(formula * s * b * h, rel=0.02)


@pytest.mark.full
def test_deep_models_are_counted_with_few_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe("gpt3_tiny", [*SMALL, "model.layers=5"])
    counted = count_step(recipe)
    monkeypatch.setattr("foreword.runs.counted._period", lambda _: 5)
    whole = count_step(recipe)
    for mode in AMOUNTS:
        first, second = (
            sum(part.activations for part in way.kept[mode]) for way in (counted, whole)
        )
        assert first == pytest.approx(second, rel=0.08)
    assert counted.flops_per_row == pytest.approx(whole.flops_per_row, rel=0.05)


def test_no_layer_of_a_large_model_has_numbers() -> None:
    with fake_tensors():
        table = torch.empty(10**12, 10**3)
        assert (table[np.array([1, 2])] * 2).shape == (2, 1000)
