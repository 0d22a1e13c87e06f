"""Where models with a source look while they write: rows that add up, words put together."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch

from foreword import config
from foreword.errors import UserError
from foreword.evaluate.alignment import align
from foreword.evaluate.prompting import PromptedModel
from foreword.evaluate.scorer import side_by_side
from foreword.nn.init import initialise
from foreword.report.alignment import plot_alignment
from foreword.runs.recipe import Recipe
from foreword.text.tokenizer import Tokenizer

SOURCE, TARGET = "The cat sat on the mat.", "A bird sang in the river."

SPREAD = {"init": "uniform", "init_std": 1.0}  # so that each word looks elsewhere


def recipe(kind: str, **model: Any) -> Recipe:
    table = {
        "description": "tiny",
        "model": {"kind": kind, "d_model": 16, "layers": 2, **SPREAD, **model},
        "objective": "translate",
        "layout": {"kind": "encoder_decoder", "start": "<s>"},
        "packing": {"kind": "parallel", "length": 64},
    }
    return config.build(Recipe, table)


def prompted_of(made: Recipe, tokenizer: Tokenizer) -> PromptedModel:
    model = made.build(tokenizer.vocab)
    initialise(model, 1)
    return PromptedModel(model.eval(), made, tokenizer, torch.device("cpu"))


MODELS = [
    *(
        pytest.param("seq2seq", {"attention": name}, id=name)
        for name in ("mean", "dot", "additive")
    ),
    pytest.param("seq2seq", {"input_feeding": True}, id="fed"),
    pytest.param("encoder_decoder", {"heads": 2}, id="transformer"),
]


@pytest.mark.parametrize(("kind", "model"), MODELS)
def test_words_stand_on_both_axes_and_rows_add_up(
    kind: str, model: dict[str, Any], bpe: Tokenizer
) -> None:
    found = align(prompted_of(recipe(kind, **model), bpe), SOURCE, TARGET)
    assert found.source == ("The", "cat", "sat", "on", "the", "mat", ".", "</s>")
    assert found.target == ("A", "bird", "sang", "in", "the", "river", ".", "</s>")
    assert found.weights.shape == (8, 8)
    np.testing.assert_allclose(found.weights.sum(1), 1, atol=1e-6)
    if model.get("attention") == "mean":
        ids = bpe.encode(SOURCE)
        tokens = np.diff(np.flatnonzero([True, *bpe.vocab.starts_word[ids][1:], True]))
        wanted = np.array([*tokens, 1]) / (len(ids) + 1)
        np.testing.assert_allclose(found.weights, np.tile(wanted, (8, 1)), atol=1e-6)
    elif model.get("attention") != "dot":
        assert found.weights.std(0).max() > 1e-4, "it looks elsewhere at each word"


def test_layers_of_a_transformer_look_elsewhere(bpe: Tokenizer) -> None:
    prompted = prompted_of(recipe("encoder_decoder", heads=2), bpe)
    first, last = (align(prompted, SOURCE, TARGET, layer) for layer in (1, 2))
    assert "layer 1 of 2, mean of its heads" in first.what
    assert np.abs(first.weights - last.weights).max() > 1e-4
    np.testing.assert_array_equal(align(prompted, SOURCE, TARGET).weights, last.weights)
    with pytest.raises(UserError, match="--layer 3: layers 1 to 2"):
        align(prompted, SOURCE, TARGET, 3)


def test_weights_are_those_that_mixed_the_values(bpe: Tokenizer) -> None:
    """With every value 1 at one source token and 0 elsewhere, the mix is its weight."""
    prompted = prompted_of(recipe("encoder_decoder", heads=1, layers=1, bias=False), bpe)
    cross = prompted.model.backbone.decoder.blocks[0].cross  # type: ignore[union-attr]
    width = cross.heads * cross.d_head
    mixed: list[torch.Tensor] = []

    def of_one(module: Any, given: Any) -> Any:
        x, (keys, values), view = given
        ones = torch.zeros_like(values)
        ones[:, :, 0] = 1
        return x, (keys, ones), view

    hooks = [
        cross.register_forward_pre_hook(of_one),
        cross.output.register_forward_hook(lambda module, given, out: mixed.append(given[0])),
    ]
    found = align(prompted, TARGET, TARGET)  # whose first word is one token
    for hook in hooks:
        hook.remove()
    assert mixed[0].shape[-1] == width
    assert mixed[0][0, 0, 0].item() == pytest.approx(found.weights[0, 0], abs=1e-5)


@pytest.mark.parametrize("kind", ["none", "decoder"])
def test_without_attention_to_a_source_there_is_no_alignment(
    kind: str, bpe: Tokenizer, make_prompted: Callable[..., PromptedModel]
) -> None:
    if kind == "none":
        prompted = prompted_of(recipe("seq2seq", attention="none"), bpe)
    else:
        prompted = make_prompted("decoder")
    with pytest.raises(UserError, match="has no attention"):
        align(prompted, SOURCE, TARGET)


def test_the_picture_grows_with_the_words(bpe: Tokenizer) -> None:
    from PIL import Image

    prompted = prompted_of(recipe("seq2seq"), bpe)
    short = plot_alignment(align(prompted, SOURCE, TARGET))
    long = plot_alignment(align(prompted, SOURCE + " " + SOURCE, TARGET))
    widths = [Image.open(BytesIO(picture)).width for picture in (short, long)]
    assert widths[0] < widths[1]
    assert plot_alignment(align(prompted, SOURCE, TARGET)) == short


@pytest.mark.parametrize("kind", ["seq2seq", "encoder_decoder"])
def test_the_encoders_states_of_a_text(kind: str, bpe: Tokenizer) -> None:
    prompted = prompted_of(recipe(kind), bpe)
    texts = [prompted.source_of(bpe.encode(text)) for text in (SOURCE, f"{TARGET} {TARGET}")]
    together = prompted.encode(side_by_side(texts))
    for ids, states in zip(texts, together, strict=True):
        alone = prompted.encode(side_by_side([ids]))[0]
        assert alone.shape == (len(ids), 16)
        np.testing.assert_allclose(states[: len(ids)], alone, atol=1e-5)
