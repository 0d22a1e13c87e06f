"""A pretrained model with other settings, as those of fine-tuning ask for."""

from __future__ import annotations

from dataclasses import replace

from foreword.errors import UserError
from foreword.nn.init import initialise, unfilled
from foreword.nn.model import ModelSettings, neural_settings
from foreword.nn.stack_settings import StackSettings
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import TrainedModel
from foreword.tuning.strategies._contract import Strategy


def recipe_for(recipe: Recipe, strategy: Strategy) -> Recipe:
    """Return the recipe of a model that is tuned by a strategy.

    Raises:
        UserError: the strategy cannot tune such a model.
    """
    return replace(recipe, model=strategy.model_settings(neural_settings(recipe.model)))


def adapted(trained: TrainedModel, strategy: Strategy, seed: int) -> TrainedModel:
    """Return the model as a strategy tunes it.

    Raises:
        UserError: the strategy cannot tune such a model.
    """
    settings = strategy.model_settings(neural_settings(trained.recipe.model))
    return with_settings(trained, settings, seed)


def without_prefix(trained: TrainedModel) -> TrainedModel:
    """Return the model without the prefix of its attention, if it has one."""
    settings = trained.recipe.model
    if not isinstance(settings, StackSettings):
        return trained
    return with_settings(trained, replace(settings, attention_prefix=0), trained.recipe.train.seed)


def with_settings(trained: TrainedModel, settings: ModelSettings, seed: int) -> TrainedModel:
    """Return the model with other settings, and its own values of the parameters that both have.

    Args:
        seed: seed of the parameters that only the new model has.
    """
    if settings == trained.recipe.model:
        return trained
    recipe = replace(trained.recipe, model=settings)
    with unfilled():
        model = recipe.build(trained.vocab)
    initialise(model, seed)
    model.load_state_dict(trained.model.state_dict(), strict=False)
    return replace(trained, recipe=recipe, model=model.to(trained.device).eval())


def has_dropout(trained: TrainedModel) -> bool:
    """Return whether the backbone has dropout in training."""
    return neural_settings(trained.recipe.model).dropout > 0


def with_dropout(trained: TrainedModel, rate: float | None) -> TrainedModel:
    """Return the model with another dropout rate; None keeps its own.

    Raises:
        UserError: the model has none that could be set.
    """
    settings = neural_settings(trained.recipe.model)
    if rate is None:
        return trained
    try:
        return with_settings(trained, replace(settings, dropout=rate), trained.recipe.train.seed)
    except ValueError as error:
        raise UserError(f"tune.dropout: {error}") from None
