"""ELECTRA's generator: a smaller model that shares the trained model's embeddings."""

from __future__ import annotations

from dataclasses import replace

from foreword.errors import UserError
from foreword.models.transformer import Transformer, TransformerBackbone
from foreword.nn.model import ModelSettings, NeuralBackbone
from foreword.nn.positions.learned import LearnedPositions


def generator_settings(settings: ModelSettings, share: float) -> Transformer:
    """Return a generator's settings: the same depth, widths and heads scaled by `share`.

    Widths are rounded to an even number per head. Embeddings keep the width of `settings`; a
    linear map projects them to the generator's width.

    Raises:
        UserError: the model is not a Transformer.
    """
    if not isinstance(settings, Transformer):
        raise UserError("model.kind: the generator of 'replaced_token' needs a 'transformer'")
    heads = max(1, round(settings.heads * share))
    d_model = 2 * heads * max(1, round(settings.d_model * share / (2 * heads)))
    width = settings.embedding_width
    return replace(
        settings,
        d_model=d_model,
        heads=heads,
        d_ff=None if settings.d_ff is None else max(1, round(settings.d_ff * share)),
        d_embedding=None if width == d_model else width,
    )


def build_generator(backbone: NeuralBackbone, share: float, vocab: int) -> NeuralBackbone:
    """Build a generator for `backbone`, scaled by `share`, with shared embeddings.

    Token, segment and learned position embeddings and their norm are the backbone's own modules;
    the map to the generator's width is new.

    Raises:
        UserError: the backbone is not a Transformer.
    """
    generator = generator_settings(backbone.settings, share).build(vocab)
    for name in ("token", "segment", "norm"):
        setattr(generator.embedding, name, getattr(backbone.embedding, name))
    assert isinstance(backbone, TransformerBackbone)
    assert isinstance(generator, TransformerBackbone)
    if isinstance(backbone.stack.position, LearnedPositions):
        generator.stack.position = backbone.stack.position
    return generator
