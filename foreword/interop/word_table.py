"""The input vectors of words, of a model of any family."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from foreword.errors import UserError
from foreword.nn.model import Model, NeuralBackbone, neural
from foreword.text.pieces import SPACE
from foreword.text.special import UNK
from foreword.text.tokenizer import Tokenizer
from foreword.types import Array
from foreword.vectors.table import WordTable

_AT_ONCE = 4096  # tokens whose vectors are computed at once


def word_table(model: Model, tokenizer: Tokenizer) -> WordTable:
    """Return the words of a model's vocabulary: pieces that begin a word, with input embeddings.

    A word of several pieces has the mean of their vectors; one with an unknown piece has none.
    Tokens that never occurred in training are left out, if the model has their counts.

    Raises:
        UserError: the model has no vectors.
    """
    vectors, vocab = input_vectors(model, tokenizer.vocab.size), tokenizer.vocab
    counts = neural(model.backbone).counts
    is_known = vocab.starts_word & ~vocab.is_special
    if counts is not None:
        is_known &= counts > 0
    # Whole words, by frequency if it is known.
    ids = np.flatnonzero(is_known)
    if counts is not None:
        ids = ids[np.argsort(-counts[ids], kind="stable")]
    by_word: dict[str, int] = {}
    for i in ids:
        by_word.setdefault(tokenizer.token(int(i)).strip(SPACE), int(i))
    by_word.pop("", None)
    # Other words are cut into pieces.
    unknown = vocab.special.get(UNK)

    def cut(word: str) -> list[str]:
        return [tokenizer.token(i).strip(SPACE) for i in pieces(word)]

    def pieces(word: str) -> list[int]:
        ids = tokenizer.encode(f" {word}").tolist()
        return [i for i in ids if tokenizer.token(i).strip(SPACE)]

    def spell(word: str) -> Array | None:
        ids = pieces(word)
        if not ids or unknown in ids or (counts is not None and not counts[ids].all()):
            return None
        mean: Array = vectors[ids].mean(axis=0)
        return mean

    def simplify(word: str) -> str:
        ids = pieces(word)
        is_one = len(ids) == 1 and ids[0] != unknown
        return tokenizer.token(ids[0]).strip(SPACE) if is_one else word

    return WordTable(tuple(by_word), vectors[list(by_word.values())], spell, simplify, cut)


def input_vectors(model: Model, size: int) -> Array:
    """Return the input vectors of the first `size` tokens, from a table or from characters.

    Returns:
        (size, width) float32.

    Raises:
        UserError: the model has none.
    """
    if not isinstance(model.backbone, NeuralBackbone):
        raise UserError(
            "an n-gram model has no word vectors; use word2vec_skip_gram or a neural run"
        )
    table = model.backbone.embedding.token
    if isinstance(table, nn.Embedding):
        return np.asarray(table.weight.detach().float().cpu().numpy())
    device = next(table.parameters()).device
    with torch.inference_mode():
        parts = [
            table(torch.arange(at, min(at + _AT_ONCE, size), device=device)[None]).squeeze(0)
            for at in range(0, size, _AT_ONCE)
        ]
    return np.asarray(torch.cat(parts).float().cpu().numpy())
