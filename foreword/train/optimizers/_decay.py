"""The parameter groups with and without weight decay."""

from __future__ import annotations

from typing import Any

from torch import nn

from foreword.nn.bias_table import BiasTable


def decay_groups(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Return the trained parameters in two groups: decayed matrices and embeddings, and the rest.

    The rest are biases of any shape (`BiasTable`), norms and other vectors: BERT's code does
    not decay these, XLNet's not its u, v and s, and transformers' Trainer not T5's position bias.
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
            groups[parameter.ndim >= 2 and parameter not in biases].append(parameter)
    return [
        {"params": groups[True], "weight_decay": decay},
        {"params": groups[False], "weight_decay": 0.0},
    ]
