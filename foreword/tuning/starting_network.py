"""The network that fine-tuning starts from: pretrained or random weights, and a new head.

The pretrained model may get other settings first: dropout, or what a strategy adds.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from foreword.errors import UserError
from foreword.nn.init import initialise, unfilled
from foreword.nn.model import ModelSettings, neural, neural_settings
from foreword.nn.pair_head import PairHead
from foreword.nn.stack_settings import StackSettings
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import TrainedModel
from foreword.tuning.answers import AnswerNetwork
from foreword.tuning.network import HeadNetwork, Network
from foreword.tuning.strategies._contract import Strategy
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks._headed import below_output, hidden_layer_of


def starting_network(
    trained: TrainedModel,
    task: Task,
    labels: tuple[str, ...],
    seed: int,
    fresh: Sequence[int],
    *,
    from_scratch: bool,
    reinit_layers: int = 0,
) -> Network:
    """Return the network before the first step of fine-tuning.

    Args:
        trained: the pretrained model, which is copied.
        seed: seed of the head, of new tokens, and of random weights.
        fresh: tokens that pretraining never used, whose embeddings are to be trained.
        reinit_layers: number of top layers that start from random weights, as a pooler then does.

    Raises:
        UserError: the model has fewer layers, or they share weights.
    """
    network = build_network(trained, task, labels, seed if from_scratch else None)
    network.initialise_head(seed)
    if reinit_layers:
        untrained = build_network(trained, task, labels, seed)
        reinitialise_layers(network, untrained, reinit_layers)
    elif not from_scratch:
        start_from_pooler(network, trained)
    initialise_new_tokens(network, fresh, seed)
    return network


def start_name(trained: TrainedModel) -> str:
    """Return the name of a start from trained weights, as results have it."""
    return "pretrained" if trained.tuned_head is None else f"tuned on {trained.folder.name}"


def build_network(
    trained: TrainedModel, task: Task, labels: tuple[str, ...], random_seed: int | None
) -> Network:
    """Return a copy of the pretrained backbone, or a randomly initialised one, with a new head.

    Args:
        random_seed: seed of random weights; None to copy the pretrained ones.
    """
    if random_seed is None:
        model = copy.deepcopy(trained.model)
    else:
        model = trained.recipe.build(trained.vocab)
        initialise(model, random_seed)
    token_head = model.token_head if trained.recipe.objective.predicts.tokens else None
    backbone = neural(model.backbone)
    head = task.head(backbone.settings.state_width, labels)
    if head is None:
        return AnswerNetwork(backbone, model.token_head, is_weighted=trained.unmasks)
    return HeadNetwork(backbone, head, token_head, task.needs)


def start_from_pooler(network: Network, trained: TrainedModel) -> None:
    """Copy a trained hidden layer into one of the same form, if there are any.

    It is that of a tuned head, or the pooler, with tanh, of pretraining on pairs.
    """
    if trained.tuned_head is not None:
        new, old = (below_output(head) for head in (network.head, trained.tuned_head))
        if list(map(repr, new)) == list(map(repr, old)):
            for module, tuned in zip(new, old, strict=True):
                module.load_state_dict(tuned.state_dict())
        return
    hidden = hidden_layer_of(network.head)
    pair = dict(trained.model.heads.items()).get("pair")
    has_tanh = any(isinstance(module, nn.Tanh) for module in network.head.modules())
    if hidden is not None and has_tanh and isinstance(pair, PairHead):
        hidden[0].load_state_dict(pair.pooler.state_dict())


def reinitialise_layers(network: Network, untrained: Network, layers: int) -> None:
    """Give the top layers the weights of an untrained network.

    Args:
        untrained: a network of the same form with random weights.

    Raises:
        UserError: it has fewer layers, or they share weights with lower ones.
    """
    setting = "tune.reinit_layers"
    network.require_layers(layers, setting)
    pairs = list(zip(network.layer_modules(), untrained.layer_modules(), strict=True))[-layers:]
    layer_parameters = network.parameters_by_depth()[-layers:]
    for (module, new), parameters in zip(pairs, layer_parameters, strict=True):
        if len(parameters) < len(list(module.parameters())):
            raise UserError(f"{setting}: the layers of this model share weights; leave it out")
        module.load_state_dict(new.state_dict())


def initialise_new_tokens(network: Network, ids: Sequence[int], seed: int) -> None:
    """Initialise the embeddings of tokens that pretraining never used, normal with `init_std`."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for number in ids:
            weight = network.backbone.embedding.token.weight
            normal = torch.randn(weight.shape[1], generator=random)
            weight[number] = normal * network.backbone.settings.init_std


def recipe_for(recipe: Recipe, strategy: Strategy) -> Recipe:
    """Return the recipe of a model that is tuned by a strategy.

    Raises:
        UserError: the strategy cannot tune such a model.
    """
    return replace(recipe, model=strategy.model_settings(neural_settings(recipe.model)))


def adapted(trained: TrainedModel, strategy: Strategy, seed: int) -> TrainedModel:
    """Return the model as a strategy tunes it; see `recipe_for`."""
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
