"""Tiny runs of every layout and position kind, with random weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from foreword.nn.block import EmbeddingShortcut
from foreword.nn.embedding import Bigrams
from foreword.nn.init import initialise
from foreword.nn.model import Model
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers.bpe import BPE
from foreword.text.tokenizers.word import Word
from foreword.train import checkpoint
from tests import shelf
from tests.train.runs import short_spans

Make = Callable[..., TrainedModel]
TEXTS = [
    "The cat sat on the mat. The dog sat on the log.",
    "A bird sang in the tree, and the cat looked at the bird.",
    "The dog ran to the river. The river was cold and deep.",
    "One day the sun shone on the mat and the cat slept there.",
]

FAMILIES = {
    "encoder": ("transformer", "masked", "encoder"),
    "decoder": ("transformer", "causal", "decoder"),
    "pairs": ("transformer", "causal", "decoder"),
    "delta": ("transformer", "causal", "decoder"),
    "delta_dense": ("transformer", "causal", "decoder"),
    "prefix": ("transformer", "span_corruption", "prefix"),
    "span_decoder": ("transformer", "span_corruption", "decoder"),
    "encoder_decoder": ("encoder_decoder", "span_corruption", "encoder_decoder"),
    "placed": ("encoder_decoder", "span_corruption", "encoder_decoder"),
    "goes_on": ("encoder_decoder", "prefix", "encoder_decoder"),
    "deshuffles": ("transformer", "deshuffle", "prefix"),
    "mixture": ("encoder_decoder", "mixture", "encoder_decoder"),
    "stream": ("transformer", "causal", "decoder"),
    "transformer_xl": ("transformer", "causal", "decoder"),
    "xlnet": ("transformer", "permutation", "two_streams"),
    "hybrid": ("transformer", "hybrid", "hybrid"),
    "electra": ("transformer", "replaced_token", "encoder"),
    "diffusion": ("transformer", "diffusion", "encoder"),
}
# A family whose decoder is at the places of its sentinels in the source.
PLACED: dict[str, dict[str, Any]] = {
    "model": {"position": {"kind": "rotary"}, "rotates_cross": True},
    "layout": {"kind": "encoder_decoder", "positions": "source"},
}
# Families that read consecutive rows, and the settings of their memory.
STREAMS: dict[str, dict[str, Any]] = {
    "stream": {},
    "transformer_xl": {"memory": 16},
    "xlnet": {"memory": 16, "two_streams": True},
}


# A family with embeddings of pairs of tokens, few of them, and shortcuts from the embedding; one of
# recurrent layers alone, and one in which dense attention follows.
SETTINGS: dict[str, dict[str, Any]] = {
    "pairs": {"bigrams": 7, "embedding_shortcut": True},
    "delta": {"attention": {"kind": "gated_deltanet"}},
    "delta_dense": {
        "attention": {"kind": "gated_deltanet", "d_value": 12},
        "dense_every": 2,
        "first_dense": 1,
    },
}


def draw(model: Model) -> None:
    """Draw a tiny model's weights; those that training begins with at 0 differ from it too."""
    initialise(model, 1)
    for module in model.modules():
        if isinstance(module, Bigrams | EmbeddingShortcut):
            nn.init.normal_(module.weight, 0.5, 0.3, torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Word(min_count=1).train(TEXTS)


@pytest.fixture(scope="session")
def bpe() -> Tokenizer:
    return BPE(vocab=380).train(TEXTS * 4)


def recipe_of(family: str, position: str = "learned", length: int = 32) -> Recipe:
    model, objective, layout = FAMILIES[family]
    around = {"bos": "[CLS]", "eos": "[SEP]"} if layout == "encoder" else {"bos": "<s>"}
    packing = {"kind": "documents", "length": length, **around}
    if family in STREAMS:
        packing = {"kind": "stream", "length": length}
        position = "relative" if position == "learned" else position
    positions = 72 if objective == "deshuffle" else 64  # its rows become up to 66 tokens long
    table: dict[str, Any] = {
        "description": f"a tiny {family}",
        "model": {
            "kind": model,
            "d_model": 16,
            "layers": 2,
            "heads": 2,
            "init_std": 0.3,  # so that predictions differ between positions
            "position": {
                "kind": position,
                **({"length": positions} if position == "learned" else {}),
            },
            **({"assumes_causal_mask": layout == "decoder"} if model == "transformer" else {}),
            **STREAMS.get(family, SETTINGS.get(family, {})),
        },
        "objective": {"kind": objective, **short_spans(objective, length)},
        "layout": layout,
        "packing": packing,
        "tokenizer": {"kind": "word", "min_count": 1},
        "train": {"batch": 4, "device": "cpu"},
    }
    if family == "placed":
        table["model"] |= PLACED["model"]
        table["layout"] = PLACED["layout"]
    return config.build(Recipe, table)


def write_run(folder: Path, recipe: Recipe, tokenizer: Tokenizer) -> Path:
    def write(made: Path) -> None:
        model = recipe.build(tokenizer.vocab)
        draw(model)
        step = checkpoint.name_of(1)
        checkpoint.save(made / "checkpoints" / step, model, None, {"step": 1})
        (made / "recipe.toml").write_text(recipe.dumps(), encoding="utf-8")
        (made / "run.json").write_text('{"texts": []}', encoding="utf-8")
        tokenizer.save(made / "tokenizer")

    return shelf.copied(f"{recipe.dumps()} {tokenizer.to_str()}", write, folder)


@pytest.fixture
def make_run(tmp_path: Path, tokenizer: Tokenizer) -> Callable[..., Path]:
    def make(family: str, position: str = "learned", length: int = 32) -> Path:
        recipe = recipe_of(family, position, length)
        return write_run(tmp_path / f"{family}-{position}", recipe, tokenizer)

    return make


@pytest.fixture
def make_prompted(tokenizer: Tokenizer) -> Make:
    def make(
        family: str,
        position: str = "learned",
        length: int = 32,
        text: Tokenizer = tokenizer,
        **train: object,
    ) -> TrainedModel:
        recipe = recipe_of(family, position, length)
        recipe = dataclasses.replace(recipe, **train)
        model = recipe.build(text.vocab)
        draw(model)
        return TrainedModel(model.eval(), recipe, text, torch.device("cpu"))

    return make


@pytest.fixture
def make_prompted_run(make_run: Callable[..., Path]) -> Make:
    def make(family: str, position: str = "learned") -> TrainedModel:
        return open_run(make_run(family, position), "cpu")

    return make
