"""Alignments: their words, their weights, and refusals."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch

from foreword.errors import UserError
from foreword.evaluation.alignment import align
from foreword.nn.init import initialise
from foreword.reports.alignment import plot_alignment
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config
from foreword.text.tokenizer import Tokenizer
from tests.evaluation.conftest import Make

SOURCE, TARGET = "The cat sat on the mat.", "A bird sang in the river."

SPREAD = {"init": "uniform", "init_std": 1.0}  # so that each word has other weights


def recipe(kind: str, **model: Any) -> Recipe:
    table = {
        "description": "tiny",
        "model": {"kind": kind, "d_model": 16, "layers": 2, **SPREAD, **model},
        "objective": "translate",
        "layout": {"kind": "encoder_decoder", "start": "<s>"},
        "packing": {"kind": "parallel", "length": 64},
    }
    return config.build(Recipe, table)


def prompted_of(recipe: Recipe, tokenizer: Tokenizer) -> TrainedModel:
    model = recipe.build(tokenizer.vocab)
    initialise(model, 1)
    return TrainedModel(model.eval(), recipe, tokenizer, torch.device("cpu"))


MODELS = [
    *(
        pytest.param("seq2seq", {"attention": name}, id=name)
        for name in ("mean", "dot", "additive")
    ),
    pytest.param("seq2seq", {"input_feeding": True}, id="fed"),
    pytest.param("encoder_decoder", {"heads": 2}, id="transformer"),
]


@pytest.mark.parametrize(("kind", "model"), MODELS)
def test_both_axes_are_words_and_rows_sum_to_1(
    kind: str, model: dict[str, Any], bpe: Tokenizer
) -> None:
    alignment = align(prompted_of(recipe(kind, **model), bpe), SOURCE, TARGET)
    assert alignment.source == ("The", "cat", "sat", "on", "the", "mat", ".", "</s>")
    assert alignment.target == ("A", "bird", "sang", "in", "the", "river", ".", "</s>")
    assert alignment.weights.shape == (8, 8)
    np.testing.assert_allclose(alignment.weights.sum(1), 1, atol=1e-6)
    if model.get("attention") == "mean":
        ids = bpe.encode(SOURCE)
        tokens = np.diff(np.flatnonzero([True, *bpe.vocab.starts_word[ids][1:], True]))
        expected = np.array([*tokens, 1]) / (len(ids) + 1)
        np.testing.assert_allclose(alignment.weights, np.tile(expected, (8, 1)), atol=1e-6)
    elif model.get("attention") != "dot":
        assert alignment.weights.std(0).max() > 1e-4, "each target word has other weights"


def test_layers_of_a_transformer_give_different_weights(bpe: Tokenizer) -> None:
    prompted = prompted_of(recipe("encoder_decoder", heads=2), bpe)
    first, last = (align(prompted, SOURCE, TARGET, layer) for layer in (1, 2))
    assert "layer 1 of 2, mean of its heads" in first.what
    assert np.abs(first.weights - last.weights).max() > 1e-4
    np.testing.assert_array_equal(align(prompted, SOURCE, TARGET).weights, last.weights)
    with pytest.raises(UserError, match="--layer 3: layers 1 to 2"):
        align(prompted, SOURCE, TARGET, 3)


def test_weights_are_those_that_attention_applies_to_values(bpe: Tokenizer) -> None:
    """With every value 1 at one source token and 0 elsewhere, the output is its weight."""
    prompted = prompted_of(recipe("encoder_decoder", heads=1, layers=1, bias=False), bpe)
    cross = prompted.model.backbone.decoder.blocks[0].cross  # type: ignore[union-attr]
    width = cross.heads * cross.d_head
    outputs: list[torch.Tensor] = []

    def replace_values(module: Any, inputs: Any) -> Any:
        x, (keys, values), view = inputs
        ones = torch.zeros_like(values)
        ones[:, :, 0] = 1
        return x, (keys, ones), view

    hooks = [
        cross.register_forward_pre_hook(replace_values),
        cross.output.register_forward_hook(
            lambda module, inputs, output: outputs.append(inputs[0])
        ),
    ]
    alignment = align(prompted, TARGET, TARGET)  # its first word is one token
    for hook in hooks:
        hook.remove()
    assert outputs[0].shape[-1] == width
    assert outputs[0][0, 0, 0].item() == pytest.approx(alignment.weights[0, 0], abs=1e-5)


@pytest.mark.parametrize("kind", ["none", "decoder"])
def test_models_without_attention_to_a_source_are_refused(
    kind: str, bpe: Tokenizer, make_prompted: Make
) -> None:
    if kind == "none":
        prompted = prompted_of(recipe("seq2seq", attention="none"), bpe)
    else:
        prompted = make_prompted("decoder")
    with pytest.raises(UserError, match="has no attention"):
        align(prompted, SOURCE, TARGET)


@pytest.mark.full
def test_the_picture_grows_with_the_words(bpe: Tokenizer) -> None:
    from PIL import Image

    prompted = prompted_of(recipe("seq2seq"), bpe)
    short = plot_alignment(align(prompted, SOURCE, TARGET)).data
    long = plot_alignment(align(prompted, SOURCE + " " + SOURCE, TARGET)).data
    widths = [Image.open(BytesIO(picture)).width for picture in (short, long)]
    assert widths[0] < widths[1]
    assert plot_alignment(align(prompted, SOURCE, TARGET)).data == short
