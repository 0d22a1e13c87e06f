"""Tiny models with random weights, in memory, for checks of what is done with trained ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foreword.nn.init import initialise
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config
from foreword.testing.cases import SEED
from foreword.text.tokenizers.word import Word

SIZES = {"d_model": 16, "layers": 2, "dropout": 0.0, "init_std": 0.2}
ATTENTION = {"heads": 2, "attention_dropout": 0.0, "position": {"kind": "rotary"}}
FAMILIES: dict[str, dict[str, Any]] = {
    "encoder": {
        "model": {"kind": "transformer", **ATTENTION},
        "objective": "masked",
        "layout": "encoder",
        "packing": {"kind": "documents", "length": 24, "bos": "[CLS]", "eos": "[SEP]"},
    },
    "decoder": {
        "model": {"kind": "transformer", **ATTENTION, "assumes_causal_mask": True},
        "objective": "causal",
        "layout": "decoder",
        "packing": {"kind": "stream", "length": 24},
    },
    "encoder_decoder": {
        "model": {"kind": "encoder_decoder", **ATTENTION},
        "objective": "span_corruption",
        "layout": "encoder_decoder",
        "packing": {"kind": "documents", "length": 24},
    },
    "lstm": {
        "model": {"kind": "lstm"},
        "objective": "causal",
        "layout": "decoder",
        "packing": {"kind": "stream", "length": 24},
    },
}


def tiny_model(family: str, texts: Sequence[str]) -> TrainedModel:
    """Return a model of one of the `FAMILIES` whose vocabulary is the words of `texts`."""
    table = dict(FAMILIES[family])
    table["model"] = {**SIZES, **table["model"]}
    recipe = config.build(Recipe, {**table, "train": {"batch": 4, "device": "cpu"}})
    tokenizer = Word(min_count=1).train(texts)
    model = recipe.build(tokenizer.vocab)
    initialise(model, SEED)
    return TrainedModel(model.eval(), recipe, tokenizer)
