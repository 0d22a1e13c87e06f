"""The sizes of model that the dial chooses from: width, depth, vocabulary and row length together.

All sizes of a family have the proportions of its small recipe: width per layer and per head, and
the feed-forward layer's width. Their order is that of their cost, so a larger budget never leads to
a smaller model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from foreword.nn.stack_settings import StackSettings
from foreword.runs.recipe import Recipe

BYTES_PER_TOKEN = 4  # of text
USES_PER_TOKEN = 64  # mean occurrences in the text of each token of the vocabulary
LEAST_VOCAB = 512
VOCAB_EXPONENT = 0.83  # of the parameters of the layers, for those of the vocabulary
GATED = ("geglu", "geglu_tanh", "swiglu")
WIDTHS = (0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)


@dataclass(frozen=True)
class ModelSize:
    """A size of model.

    Attributes:
        d_model: width.
        layers: number of layers; of the encoder and of the decoder, where there are both.
        heads: the number of attention heads.
        d_ff: width of the feed-forward layers.
        vocab: number of tokens.
        length: tokens in a row.
        parameters: number of parameters, without norms.
        in_layers: those without embeddings.
        active: parameters of the layers that a token passes through, on average.
        flops_per_token: FLOPs of training on a token.
    """

    d_model: int
    layers: int
    heads: int
    d_ff: int
    vocab: int
    length: int
    parameters: int
    in_layers: int
    active: float
    flops_per_token: float


def sizes(
    small: Recipe,
    large: Recipe,
    text_bytes: float,
    vocab: int | None = None,
    longest: float = math.inf,
) -> list[ModelSize]:
    """Return the sizes of a family, ascending; the small recipe's is among them.

    Args:
        small: the recipe with the proportions.
        large: the recipe with the largest vocabulary and row length.
        text_bytes: the size of the training text, which limits the vocabulary.
        vocab: a given vocabulary.
        longest: tokens of the longest documents, for which no row needs more than twice as many.
    """
    model = cast(StackSettings, small.model)
    by_width: dict[int, ModelSize] = {}
    for factor in WIDTHS:
        heads = max(1, round(factor * model.heads))
        layers = max(2, round(model.layers * heads / model.heads))
        size = _size(small, large, heads, layers, longest)
        size = _with_vocab(size, small, vocab or _vocab(size, small, large, text_bytes))
        by_width[size.d_model] = size
    return list(by_width.values())


def _size(
    small: Recipe, large: Recipe, heads: int, layers: int, longest: float = math.inf
) -> ModelSize:
    """Return a size with the small recipe's proportions, and its vocabulary."""
    model = cast(StackSettings, small.model)
    factor = heads / model.heads
    d_model = round(model.d_model * factor)
    d_ff = 64 * max(1, round(model.ff_width * factor / 64))
    # Longer rows for wider models keep attention's share of the cost.
    length = small.packing.length << max(0, math.floor(math.log2(factor)))
    while length > max(small.packing.length, large.packing.length):
        length //= 2
    while length > small.packing.length and length // 2 >= longest:
        length //= 2
    matrices = 4 * d_model * heads * model.head_width
    layer = matrices + (3 if model.activation in GATED else 2) * d_model * d_ff
    encoder, decoder, _ = _shares(small)
    deep, active = layers * layer, layers * layer * encoder
    if model.reads_source:
        deep += layers * (layer + matrices)
        active += layers * (layer + matrices) * decoder
    vocab = small.tokenizer.vocab
    return ModelSize(d_model, layers, heads, d_ff, vocab, length, deep, deep, active, 0.0)


def _with_vocab(size: ModelSize, small: Recipe, vocab: int) -> ModelSize:
    """Return the size with a vocabulary, its parameters and its cost."""
    model = cast(StackSettings, small.model)
    table, predicted = vocab * size.d_model, _shares(small)[2]
    attention = 12 * size.layers * size.length * size.d_model
    return ModelSize(
        size.d_model,
        size.layers,
        size.heads,
        size.d_ff,
        vocab,
        size.length,
        size.in_layers + table * (1 if model.tied else 2),
        size.in_layers,
        size.active,
        6 * (size.active + predicted * table) + attention,
    )


def _shares(recipe: Recipe) -> tuple[float, float, float]:
    """Return the tokens in encoder and decoder, and those predicted, per token of a row."""
    length = recipe.packing.length
    if not recipe.model.reads_source:
        return 1.0, 0.0, getattr(recipe.objective, "rate", 1.0)
    longest = recipe.objective.max_lengths(length, length)
    target = longest.target / length
    return longest.source / length, target, target


def _vocab(size: ModelSize, small: Recipe, large: Recipe, text_bytes: float) -> int:
    """Return the vocabulary of a size: that of the small recipe, doubled for large ones.

    Its parameters grow with a power of the layers' parameters (Tao et al. 2024), up to the large
    recipe's. It is halved until each token occurs in the text often enough to be learned.
    """
    model = cast(StackSettings, small.model)
    first = _size(small, large, model.heads, model.layers)
    growth = (size.active / first.active) ** VOCAB_EXPONENT / (size.d_model / first.d_model)
    doubled = max(0, math.floor(math.log2(growth) + 1e-9))
    most, vocab = (
        max(large.tokenizer.vocab, small.tokenizer.vocab),
        small.tokenizer.vocab << doubled,
    )
    while vocab > most or not is_supported(vocab, text_bytes):
        vocab //= 2
    return max(vocab, LEAST_VOCAB)


def is_supported(vocab: int, text_bytes: float) -> bool:
    """Return whether each token of a vocabulary occurs in a text often enough to be learned."""
    return vocab <= max(LEAST_VOCAB, text_bytes / BYTES_PER_TOKEN / USES_PER_TOKEN)
