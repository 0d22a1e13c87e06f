"""The network that fine-tuning starts from: pretrained or random weights, and a new head."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from foreword.errors import UserError
from foreword.nn.init import initialise
from foreword.nn.model import neural
from foreword.nn.pair_head import PairHead
from foreword.runs.trained_model import TrainedModel
from foreword.tuning.answers import AnswerNetwork
from foreword.tuning.network import HeadNetwork, Network
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
