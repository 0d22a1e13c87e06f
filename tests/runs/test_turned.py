"""Trained models turned into models of other families by `--from`."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from foreword.errors import UserError
from foreword.layouts.decoder import Decoder
from foreword.nn.init import initialise
from foreword.runs.continued import StartingModel
from foreword.runs.recipe import Recipe
from foreword.settings import config
from foreword.testing.cases import rows
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers.word import Word
from foreword.types import Example, Tokens

SPECIAL = {"bos": "<s>", "eos": "</s>"}
FAMILIES: dict[str, tuple[str, str, str]] = {
    "decoder": ("transformer", "causal", "decoder"),
    "encoder": ("transformer", "masked", "encoder"),
    "diffusion": ("transformer", "diffusion", "encoder"),
    "prefix": ("transformer", "prefix", "prefix"),
    "hybrid": ("transformer", "hybrid", "hybrid"),
    "encoder_decoder": ("encoder_decoder", "span_corruption", "encoder_decoder"),
    "xlnet": ("transformer", "permutation", "two_streams"),
}
TURNED = [
    (one, other)
    for one in FAMILIES
    for other in FAMILIES
    if "xlnet" not in (one, other) and FAMILIES[one][2] != FAMILIES[other][2]
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Word(min_count=1).train(["the cat sat on the mat ."])


def recipe_of(family: str, **model: Any) -> Recipe:
    kind, objective, layout = FAMILIES[family]
    table: dict[str, Any] = {
        "model": {"kind": kind, "d_model": 16, "layers": 2, "heads": 2, "init_std": 0.3, **model},
        "objective": objective,
        "layout": layout,
        "packing": {"kind": "documents", "length": 32, **SPECIAL},
        "tokenizer": {"kind": "word", "min_count": 1},
    }
    table["model"].setdefault("position", {"kind": "rotary"})
    if family == "xlnet":
        table["packing"] = {"kind": "stream", "length": 32}
        table["model"] |= {"two_streams": True, "position": {"kind": "relative"}}
    if layout == "decoder":
        table["model"]["assumes_causal_mask"] = True
    return config.build(Recipe, table)


def trained(family: str, tokenizer: Tokenizer, **model: Any) -> StartingModel:
    recipe = recipe_of(family, **model)
    built = recipe.build(tokenizer.vocab)
    initialise(built, 5)
    return StartingModel(built.eval(), recipe, tokenizer)


@pytest.mark.parametrize(("one", "other"), TURNED)
def test_equal_shapes_have_equal_bytes_and_the_rest_is_told(
    one: str, other: str, tokenizer: Tokenizer
) -> None:
    before = trained(one, tokenizer)
    # The recipe's own architecture gives way, also its depth.
    after = before.with_recipe(recipe_of(other, d_model=24, layers=3))
    old = dict(before.model.backbone.named_parameters())
    new = dict(after.model.backbone.named_parameters())
    kept = {tensor.detach().numpy().tobytes() for tensor in old.values()}
    assert all(tensor.detach().numpy().tobytes() in kept for tensor in new.values())
    assert after.provenance["turned"] == list(after.notes[1:])
    fresh = [name for name in after.model.heads.state_dict() if "token.weight" not in name]
    table = "\n".join(after.notes)
    assert ("fresh" in table) == bool(set(fresh) - set(before.model.heads.state_dict()))
    assert ("from cross-attention" in table) is False
    assert len({re.search(r"\d(?=  \D)", line).end() for line in after.notes[1:]}) == 1  # aligned
    counted = sum(
        int(line.split()[-3].replace(",", ""))
        for line in after.notes[1:]
        if " from " in line and "heads" not in line and "cross" not in line
    )
    shared = sum(t.numel() for name, t in new.items() if ".cross" not in name)
    assert counted == shared


def test_an_encoder_made_of_a_decoder_is_the_decoder_under_its_mask(tokenizer: Tokenizer) -> None:
    before = trained("decoder", tokenizer)
    after = before.with_recipe(recipe_of("diffusion"))
    given = rows([[20], [12, 8]])
    ids = given.ids % tokenizer.vocab.size
    tokens = Tokens(ids, given.documents, given.positions)
    weights = (given.documents >= 0).astype("float32")
    batch = Decoder().arrange(Example(None, tokens, weights), tokenizer.vocab).to("cpu")
    with torch.no_grad():
        expected, states = (each.model.eval().backbone(batch).states for each in (before, after))
    assert torch.equal(states, expected)


def test_both_stacks_and_cross_attention_are_the_decoders(tokenizer: Tokenizer) -> None:
    before = trained("decoder", tokenizer)
    after = before.with_recipe(recipe_of("encoder_decoder"))
    stack = before.model.backbone.stack.blocks[1]
    for name in ("encoder", "decoder"):
        block = getattr(after.model.backbone, name).blocks[1]
        assert torch.equal(block.feedforward.up.weight, stack.feedforward.up.weight)
    assert torch.equal(block.cross.query.weight, stack.attention.query.weight)
    assert torch.equal(block.cross_norm.weight, stack.attention_norm.weight)
    # And back: the decoder's own stack, not the encoder's.
    with torch.no_grad():
        block.feedforward.up.weight.add_(1.0)
    again = after.with_recipe(recipe_of("decoder"))
    up = again.model.backbone.stack.blocks[1].feedforward.up.weight
    assert torch.equal(up, block.feedforward.up.weight)


@pytest.mark.parametrize(
    ("one", "other", "error"),
    [
        ("decoder", "xlnet", "layout.kind: the recipe's is 'two_streams', and this model was"),
        ("xlnet", "encoder", "can be turned into another of these"),
    ],
)
def test_a_bad_pair_is_refused_in_a_line(
    one: str, other: str, error: str, tokenizer: Tokenizer
) -> None:
    with pytest.raises(UserError, match=error) as caught:
        trained(one, tokenizer).with_recipe(recipe_of(other))
    assert "\n" not in str(caught.value)


def test_what_one_family_alone_has_is_refused_by_its_name(tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match=r"model\.bigrams: requires a decoder"):
        trained("decoder", tokenizer, bigrams=7).with_recipe(recipe_of("encoder"))
    hybrid = {"attention": {"kind": "gated_deltanet"}, "dense_every": 2, "first_dense": 1}
    with pytest.raises(UserError, match=r"layout.kind: 'gated_deltanet' reads only left to right"):
        trained("decoder", tokenizer, **hybrid).with_recipe(recipe_of("encoder"))
