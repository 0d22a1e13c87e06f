"""A model's network with random weights, to measure beside it."""

from __future__ import annotations

from dataclasses import replace

from foreword.nn.init import initialise
from foreword.runs.trained_model import TrainedModel


def with_random_weights(trained: TrainedModel) -> TrainedModel:
    """Return the network as it was before the first step of its training."""
    model = trained.recipe.build(trained.vocab)
    initialise(model, trained.recipe.train.seed)
    return replace(trained, model=model.to(trained.device).eval())
