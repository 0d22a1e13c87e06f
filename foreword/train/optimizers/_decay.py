"""Parameter groups: with and without weight decay, and of each learning rate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from foreword.nn.bias_table import BiasTable
from foreword.nn.trained_rows import trains_rows
from foreword.train.optimizers._contract import ONE_RATE, RateFactors


def decay_groups(
    model: nn.Module, decay: float, lr: float, factors: RateFactors = ONE_RATE
) -> list[dict[str, Any]]:
    """Return the trained parameters in two groups: decayed matrices and embeddings, and the rest.

    The rest are biases of any shape (`BiasTable`), norms and other vectors: BERT's code does
    not decay these, XLNet's not its u, v and s, and transformers' Trainer not T5's position bias.
    Matrices of which some rows alone are trained are not decayed either.
    With learning rates that differ there are two groups of each.
    """
    biases = {
        parameter
        for module in model.modules()
        if isinstance(module, BiasTable)
        for parameter in module.parameters()
    }
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for parameter in model.parameters():
        if parameter.requires_grad:
            decays = parameter.ndim >= 2 and parameter not in biases and not trains_rows(parameter)
            groups[decays].append(parameter)
    return [
        {**group, "weight_decay": decay if decays else 0.0}
        for decays, parameters in groups.items()
        for group in rate_groups(parameters, lr, factors)
    ]


def rate_groups(
    parameters: Iterable[nn.Parameter], lr: float, factors: RateFactors
) -> list[dict[str, Any]]:
    """Return parameters in a group for each of their learning rates, at least one."""
    groups: dict[float, list[nn.Parameter]] = {} if factors else {1.0: []}
    for parameter in parameters:
        groups.setdefault(factors.get(parameter, 1.0), []).append(parameter)
    return [{"params": group, "lr": lr * factor} for factor, group in groups.items()]
