"""Dropout in fine-tuning, where pretraining had another rate or none."""

from __future__ import annotations

from dataclasses import replace

from foreword.errors import UserError
from foreword.nn.model import neural_settings
from foreword.runs.trained_model import TrainedModel


def has_dropout(trained: TrainedModel) -> bool:
    """Return whether the backbone has dropout in training."""
    return neural_settings(trained.recipe.model).dropout > 0


def with_dropout(trained: TrainedModel, rate: float | None) -> TrainedModel:
    """Return the model with another dropout rate; None keeps its own.

    Raises:
        UserError: the model has none that could be set.
    """
    settings = neural_settings(trained.recipe.model)
    if rate is None or rate == settings.dropout:
        return trained
    try:
        recipe = replace(trained.recipe, model=replace(settings, dropout=rate))
    except ValueError as error:
        raise UserError(f"tune.dropout: {error}") from None
    model = recipe.build(trained.vocab).to(trained.device)
    model.load_state_dict(trained.model.state_dict())
    return replace(trained, recipe=recipe, model=model.eval())
