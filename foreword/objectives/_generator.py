"""A smaller model beside the one that is trained, on the same embeddings: ELECTRA's generator."""

from __future__ import annotations

from dataclasses import replace

from foreword.errors import UserError
from foreword.models.transformer import Transformer, TransformerBackbone
from foreword.nn.model import Backbone
from foreword.nn.positions.learned import LearnedPositions
from foreword.nn.settings import ModelSettings


def shrunk(settings: ModelSettings, share: float) -> Transformer:
    """The settings of a generator: as many layers, each a share as wide, with a share of the heads.

    Widths are rounded to an even number per head. Its embeddings are as wide as `settings` has
    them, with a linear map behind them.

    Raises:
        UserError: the model is no Transformer.
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


def build_generator(backbone: Backbone, share: float, vocab: int) -> Backbone:
    """A generator for `backbone`, of a share of its size, that has its embeddings.

    Token, segment and learned position embeddings and their norm are the backbone's own; the map
    to the generator's width is the generator's.

    Raises:
        UserError: the backbone is no Transformer.
    """
    generator = shrunk(backbone.settings, share).build(vocab)
    for name in ("token", "segment", "norm"):
        setattr(generator.embedding, name, getattr(backbone.embedding, name))
    assert isinstance(backbone, TransformerBackbone)
    assert isinstance(generator, TransformerBackbone)
    if isinstance(backbone.stack.position, LearnedPositions):
        generator.stack.position = backbone.stack.position
    return generator
