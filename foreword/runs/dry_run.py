"""A dry run: the check that a recipe's parts fit each other, before any text is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.models.encoder_decoder import EncoderDecoder
from foreword.nn.embedding import token_tables
from foreword.nn.init import shapes_only
from foreword.nn.model import Model, ModelSettings
from foreword.runs.recipe import Recipe
from foreword.text.special import ALL, NAMES, SENTINELS
from foreword.text.tokenizers._contract import TokenizerKind
from foreword.types import Example, PairLabels, Rows, Vocab

FEW_LAYERS = 24  # built in place of all layers of a model with more than twice as many


def dry_run(recipe: Recipe, vocab: Vocab | None = None, *, is_new: bool = True) -> None:
    """Check that all parts fit: build the model without weights, and arrange a dummy example.

    The model is built on torch's meta device, where weights take no memory.

    Args:
        recipe: the recipe to check.
        vocab: the vocabulary of the run's tokenizer, if it exists.
        is_new: whether no trained weights replace the first embeddings.

    Raises:
        UserError: parts do not fit; the setting is named.
    """
    vocab = vocab or dummy_vocab(recipe.tokenizer)
    with shapes_only():
        model = shallow(recipe)[0].build(vocab)
    if is_new:
        recipe.train.embedding_init.require_fit(widths_of(model, vocab))
    for name in filter(None, recipe.bos_and_eos):
        vocab.id(name)
    for number, (_, stage) in enumerate(recipe.in_stages()):
        try:
            end, eos = stage.objective.end, stage.bos_and_eos[1]
            if stage.objective.predicts.any_order and end not in ("", eos):
                raise UserError(f"objective.end: '{end}' ends no text: packing.eos is '{eos}'")
            stage.layout.arrange(dummy_example(stage, vocab), vocab)
        except UserError as error:
            is_own = number == len(recipe.stages or ())
            raise UserError(f"{'' if is_own else f'stages[{number}].'}{error}") from error


def widths_of(model: Model, vocab: Vocab) -> list[int]:
    """Return the widths of a model's tables of embeddings of tokens."""
    return [table.shape[1] for table in token_tables(model, vocab.size)]


def shallow(recipe: Recipe, few_layers: int = 0) -> tuple[Recipe, dict[str, int]]:
    """Return the recipe with few layers, and the numbers of layers that it reduced, by setting.

    Args:
        recipe: a recipe.
        few_layers: the few, of models with more than twice as many; default `FEW_LAYERS`.
    """
    few_layers = few_layers or max(FEW_LAYERS, getattr(recipe.model, "first_dense", 0) + 1)
    model = recipe.model
    if not isinstance(model, ModelSettings):
        return recipe, {}
    layers = {"layers": model.layers}
    if isinstance(model, EncoderDecoder):
        if model.decoder_layers == model.layers:
            model = replace(model, decoder_layers=None)  # the encoder's number
        layers["decoder_layers"] = model.decoder_layers or 0
    deep = {name: number for name, number in layers.items() if number > 2 * few_layers}
    few: dict[str, Any] = dict.fromkeys(deep, few_layers)
    return replace(recipe, model=replace(model, **few)), deep


def dummy_vocab(tokenizer: TokenizerKind) -> Vocab:
    """Return the vocabulary of a tokenizer of this kind and size before it is trained."""
    size = tokenizer.vocab
    is_special = np.arange(size) < len(ALL)
    special = {token: n for n, token in enumerate(NAMES)}
    sentinels = np.arange(len(NAMES), len(NAMES) + len(SENTINELS))
    return Vocab(size, special, sentinels, is_special, ~is_special)


def dummy_example(recipe: Recipe, vocab: Vocab, count: int = 1) -> Example:
    """Return the example of `count` rows of ordinary tokens.

    Each row is a pair of two halves if the packing makes pairs, labelled if it labels them.
    """
    shape = (count, recipe.packing.length)
    ids = np.resize(np.flatnonzero(~vocab.is_special), shape).astype(np.int64)
    positions = np.tile(np.arange(shape[1]), (count, 1))
    packing, segments = recipe.packing, None
    parts: tuple[Any, ...] = ()
    if packing.labels_pairs or packing.needs_pairs:
        segments = (positions >= shape[1] // 2).astype(np.int64)
    if packing.labels_pairs:
        parts = (PairLabels(np.where(positions > 0, -1, 0)),)
    numbers = np.arange(count, dtype=np.int64)
    rows = Rows(ids, np.zeros_like(ids), positions, numbers, segments, parts)
    return recipe.objective.corrupt(rows, RowRng(0, rows.numbers), vocab)
