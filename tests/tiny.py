"""Every tiny recipe that is trained, and a batch of what its objective and layout make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foreword.data.rng import RowRng
from foreword.nn.init import initialise
from foreword.nn.model import Model
from foreword.runs.recipe import Recipe, load_recipe
from foreword.settings import config
from foreword.text import special
from foreword.types import Batch, PairLabels, Rows, Vocab

# One that is counted takes no steps; `tests/models/test_ngram.py` fits it.
TRAINED = [
    name
    for name in config.RECIPES.names()
    if name.endswith("_tiny") and not load_recipe(name).model.is_count_based
]


def vocab(size: int) -> Vocab:
    """Special tokens first; every other id is a word."""
    first = len(special.ALL)
    return Vocab(
        size=size,
        special={name: n for n, name in enumerate(special.NAMES)},
        sentinels=np.arange(len(special.NAMES), first),
        is_special=np.arange(size) < first,
        starts_word=np.ones(size, dtype=bool),
    )


def as_pairs(rows: Rows) -> Rows:
    """The rows, each document a pair of texts that follow each other."""
    labels = np.where((rows.positions == 0) & (rows.documents >= 0), 0, -1)
    segments = (rows.positions > rows.ids.shape[1] // 2).astype(np.int64)
    return replace(rows, segments=segments, parts=(PairLabels(labels),))


def build(recipe: Recipe) -> Model:
    """The recipe's model, its weights drawn."""
    model = recipe.build(vocab(recipe.tokenizer.vocab))
    initialise(model, recipe.train.seed)
    return model


def batch(recipe: Recipe, count: int = 4, step: int = 0) -> Batch:
    """`count` rows of random tokens as the recipe's objective and layout make them."""
    words, random = vocab(recipe.tokenizer.vocab), np.random.default_rng([1, step])
    length = recipe.packing.length
    is_apart = getattr(recipe.packing, "document_mask", False)
    documents = np.zeros((count, length), np.int64) + (np.arange(length) // 25 if is_apart else 0)
    ids = random.integers(len(special.ALL), words.size, (count, length))
    position_ids = np.tile(np.arange(length), (count, 1))
    rows = as_pairs(Rows(ids, documents, position_ids, np.arange(count) + count * step))
    example = recipe.objective.corrupt(rows, RowRng(recipe.train.seed, rows.numbers), words)
    return recipe.layout.arrange(example, words).to("cpu")
