"""Attention weights of a text, against `transformers` and a softmax computed apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foreword.errors import UserError
from foreword.evaluation.attention_weights import attention_weights
from foreword.interop import importing
from foreword.nn.init import initialise
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config
from foreword.testing.models import ATTENTION, FAMILIES, SIZES, tiny_model
from foreword.text.tokenizers.word import Word
from tests.interop import theirs

TEXT = "the old man lives near a river in the old town"


def prompted(family: str, **model: Any) -> TrainedModel:
    """Return a tiny model with other settings of its network."""
    tokenizer = Word(min_count=1).train([TEXT])
    table = {**FAMILIES[family], "train": {"batch": 4, "device": "cpu"}}
    table["model"] = {**SIZES, **table["model"], **model}
    recipe = config.build(Recipe, table)
    built = recipe.build(tokenizer.vocab)
    initialise(built, 1)
    return TrainedModel(built.eval(), recipe, tokenizer, torch.device("cpu"))


@pytest.mark.parametrize("family", ["bert", "albert", "gpt2", "t5", "modernbert", "xlnet"])
def test_weights_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")

    theirs.write(family, tmp_path / "theirs")
    importing.save(importing.read(tmp_path / "theirs"), tmp_path / "run")
    ours = open_run(tmp_path / "run", "cpu")
    text = " ".join(theirs.WORDS[n] for n in (3, 1, 4, 1, 5, 9, 2, 6))
    found = attention_weights(ours, text)
    ids = ours.with_special_tokens(ours.tokenizer.encode(text))
    name = transformers.AutoConfig.from_pretrained(tmp_path / "theirs").architectures[0]
    model = getattr(transformers, name).from_pretrained(
        tmp_path / "theirs", attn_implementation="eager"
    )
    call = {"input_ids": torch.from_numpy(ids)[None], "output_attentions": True}
    if family == "t5":
        call["decoder_input_ids"] = call["input_ids"]
    with torch.no_grad():
        output = model.eval()(**call)
    expected = output.encoder_attentions if family == "t5" else output.attentions
    assert len(found.layers) == len(expected) and len(found.tokens) == len(ids)
    for one, other in zip(found.layers, expected, strict=True):
        np.testing.assert_allclose(one, other[0].numpy(), atol=1e-5)


def test_weights_are_the_softmax_of_scaled_products_without_positions() -> None:
    model = prompted("encoder", layers=1, position="none")
    found = attention_weights(model, TEXT)
    # The same from the weights of the one layer alone.
    ids = torch.from_numpy(model.with_special_tokens(model.tokenizer.encode(TEXT)))[None]
    block = model.model.backbone.stack.blocks[0]
    with torch.no_grad():
        x = block._pre_norm(model.model.backbone.embedding.token(ids), block.attention_norm)
        attention = block.attention
        q = attention.query(x).view(1, -1, attention.heads, attention.d_head)
        k = attention.key_value(x).view(1, -1, 2, attention.heads, attention.d_head)[:, :, 0]
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / attention.d_head**0.5
    np.testing.assert_allclose(found.layers[0], scores.softmax(-1)[0].numpy(), atol=1e-5)


@pytest.mark.parametrize("family", ["encoder", "decoder", "encoder_decoder"])
def test_every_token_spreads_a_weight_of_1(family: str) -> None:
    found = attention_weights(prompted(family), TEXT)
    assert len(found.layers) == SIZES["layers"]
    for heads in found.layers:
        assert heads.shape == (ATTENTION["heads"], len(found.tokens), len(found.tokens))
        np.testing.assert_allclose(heads.sum(-1), 1, atol=1e-5)


def test_a_causal_model_attends_to_nothing_ahead() -> None:
    for heads in attention_weights(prompted("decoder"), TEXT).layers:
        assert not np.triu(heads, 1).any()


def test_special_tokens_are_named_and_marked() -> None:
    found = attention_weights(prompted("encoder"), "the old river")
    assert found.tokens == ("[CLS]", "the", "old", "river", "[SEP]")
    assert found.is_special.tolist() == [True, False, False, False, True]


def test_a_window_leaves_the_rest_without_weight() -> None:
    found = attention_weights(prompted("encoder", attention={"kind": "window", "radius": 2}), TEXT)
    at = np.arange(len(found.tokens))
    far = np.abs(at[:, None] - at) > 2
    for heads in found.layers:
        assert not heads[:, far].any()
        np.testing.assert_allclose(heads.sum(-1), 1, atol=1e-5)


def test_shared_layers_have_weights_of_their_own() -> None:
    layers = attention_weights(prompted("encoder", share="all"), TEXT).layers
    assert len(layers) == 2 and not np.allclose(layers[0], layers[1])


def test_no_hook_is_left_in_the_model() -> None:
    model = prompted("encoder")
    attention_weights(model, TEXT)
    assert not any(module._forward_hooks for module in model.model.modules())


def test_a_recurrent_model_is_refused() -> None:
    model = replace(tiny_model("lstm", [TEXT]), source=Path("mine"))
    with pytest.raises(UserError, match=r"^mine: .* has no self-attention"):
        attention_weights(model, TEXT)


def test_weights_of_mixed_positions_are_refused() -> None:
    attention = {"kind": "linformer", "length": 24, "projected": 4}
    model = prompted("encoder", attention=attention, position={"kind": "learned", "length": 24})
    with pytest.raises(UserError, match="'linformer' mixes all positions"):
        attention_weights(model, TEXT)
