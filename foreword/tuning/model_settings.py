"""A pretrained model with other settings, as a strategy of fine-tuning asks for."""

from __future__ import annotations

from dataclasses import replace

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

    Args:
        trained: the pretrained model.
        strategy: the strategy.
        seed: of the parameters that it adds.

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
        trained: the model, which is not changed.
        settings: the new settings.
        seed: of the parameters that only the new model has.
    """
    if settings == trained.recipe.model:
        return trained
    recipe = replace(trained.recipe, model=settings)
    with unfilled():
        model = recipe.build(trained.vocab)
    initialise(model, seed)
    model.load_state_dict(trained.model.state_dict(), strict=False)
    return replace(trained, recipe=recipe, model=model.to(trained.device).eval())
