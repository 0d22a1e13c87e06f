"""The sizes of model that the dial chooses from: width, depth, vocabulary and row length together.

All sizes of a family have the proportions of its small recipe: width per layer and per head, and
the feed-forward layer's width. Their order is that of their cost, so a larger budget never leads to
a smaller model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from foreword.nn.model import Architecture, neural_settings
from foreword.nn.stack_settings import StackSettings
from foreword.planning.laws import Rules
from foreword.runs.recipe import Recipe
from foreword.settings import kinds

GATED = ("geglu", "geglu_tanh", "swiglu")
GATES = {"rnn": 1, "gru": 3, "lstm": 4}  # of recurrent layers


@dataclass(frozen=True)
class ModelSize:
    """A size of model.

    Attributes:
        d_model: width.
        layers: number of layers; of the encoder and of the decoder, where there are both.
        heads: the number of attention heads; 0 without attention.
        d_ff: width of the feed-forward layers; 0 without them.
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
    rules: Rules,
    small: Recipe,
    large: Recipe,
    text_bytes: float,
    vocab: int | None = None,
    longest: float = math.inf,
) -> list[ModelSize]:
    """Return the sizes of a family, ascending; the small recipe's is among them.

    Args:
        rules: the figures of the rules.
        small: the recipe with the proportions.
        large: the recipe with the largest vocabulary and row length.
        text_bytes: the size of the training text, which limits the vocabulary.
        vocab: a given vocabulary.
        longest: tokens of the longest documents, for which no row needs more than twice as many.
    """
    units, layers = _units(small.model), neural_settings(small.model).layers
    by_width: dict[int, ModelSize] = {}
    for factor in rules.widths:
        wide = max(1, round(factor * units))
        deep = max(2, round(layers * wide / units))
        size = _size(small, large, wide, deep, longest)
        size = _with_vocab(size, small, vocab or _vocab(rules, size, small, large, text_bytes))
        by_width[size.d_model] = size
    return list(by_width.values())


def _units(model: Architecture) -> int:
    """Return how many units of width a model has: its heads, or of a recurrent one 64 each."""
    return getattr(model, "heads", 0) or max(1, neural_settings(model).d_model // 64)


def _size(
    small: Recipe, large: Recipe, units: int, layers: int, longest: float = math.inf
) -> ModelSize:
    """Return a size with the small recipe's proportions, and its vocabulary."""
    model = neural_settings(small.model)
    factor = units / _units(model)
    d_model = round(model.d_model * factor)
    # Longer rows for wider models keep attention's share of the cost.
    length = small.packing.length << max(0, math.floor(math.log2(factor)))
    while length > max(small.packing.length, large.packing.length):
        length //= 2
    while length > small.packing.length and length // 2 >= longest:
        length //= 2
    vocab = small.tokenizer.vocab
    if not isinstance(model, StackSettings):
        # As deep as the small one: an input and a state for each gate of each layer.
        deep = model.layers * GATES[kinds.name_of(model)] * 2 * d_model**2
        return ModelSize(d_model, model.layers, 0, 0, vocab, length, deep, deep, deep, 0.0)
    d_ff = 64 * max(1, round(model.ff_width * factor / 64))
    matrices = 4 * d_model * units * model.head_width
    layer = matrices + (3 if model.activation in GATED else 2) * d_model * d_ff
    encoder, decoder, _ = _shares(small)
    deep, active = layers * layer, layers * layer * encoder
    if model.reads_source:
        deep += layers * (layer + matrices)
        active += layers * (layer + matrices) * decoder
    return ModelSize(d_model, layers, units, d_ff, vocab, length, deep, deep, active, 0.0)


def _with_vocab(size: ModelSize, small: Recipe, vocab: int) -> ModelSize:
    """Return the size with a vocabulary, its parameters and its cost."""
    model = neural_settings(small.model)
    table, predicted = vocab * size.d_model, _shares(small)[2]
    attention = 12 * size.layers * size.length * size.d_model if size.heads else 0
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


def _vocab(rules: Rules, size: ModelSize, small: Recipe, large: Recipe, text_bytes: float) -> int:
    """Return the vocabulary of a size: that of the small recipe, doubled for large ones.

    Its parameters grow with a power of the layers' parameters (Tao et al. 2024), up to the large
    recipe's. It is halved until each token occurs in the text often enough to be learned.
    """
    model = neural_settings(small.model)
    first = _size(small, large, _units(model), model.layers)
    growth = (size.active / first.active) ** rules.vocab_exponent / (size.d_model / first.d_model)
    doubled = max(0, math.floor(math.log2(growth) + 1e-9))
    most, vocab = (
        max(large.tokenizer.vocab, small.tokenizer.vocab),
        small.tokenizer.vocab << doubled,
    )
    while vocab > most or not rules.is_supported(vocab, text_bytes):
        vocab //= 2
    return max(vocab, rules.least_vocab)
