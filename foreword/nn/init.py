"""How weights start: one function, three published ways."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from foreword.nn.attention import Attention
from foreword.nn.feedforward import FeedForward
from foreword.nn.heads import TokenHead
from foreword.nn.model import Model
from foreword.nn.positions.t5_bias import T5BiasPositions


def initialise(model: Model, seed: int) -> None:
    """Draws every weight of `model` anew from `seed`; biases are 0, norms 1.

    - `bert`: every matrix and embedding normal with `init_std`, folded at two deviations
      (Devlin et al. 2019, whose code draws those beyond again).
    - `gpt2`: normal with `init_std`; the layers that write to the residual stream are divided by
      sqrt(2 * layers) (Radford et al. 2019, section 2.3).
    - `t5`: embeddings 1; each matrix, an output layer of its own too, 1 / sqrt(what enters it), so
      that unscaled attention starts with scores of order 1: the query's is divided by
      sqrt(d_head) as well (Raffel et al. 2020, their code; T5X for the output layer).
    """
    settings = model.backbone.settings
    random = torch.Generator().manual_seed(seed)

    def normal(weight: Tensor, std: float) -> None:
        drawn = torch.randn(weight.shape, generator=random)
        if settings.init == "bert":
            drawn = torch.fmod(drawn, 2.0)
        weight.copy_(drawn.mul_(std))

    def spread(module: nn.Linear) -> float:
        return module.in_features**-0.5 if settings.init == "t5" else settings.init_std

    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                normal(module.weight, spread(module))
                if module.bias is not None:
                    module.bias.zero_()
            elif isinstance(module, nn.Embedding):
                normal(module.weight, 1.0 if settings.init == "t5" else settings.init_std)
            elif isinstance(module, TokenHead) and not settings.tied:
                width = module.weight.shape[1]
                normal(module.weight, width**-0.5 if settings.init == "t5" else settings.init_std)
        for module in model.modules():
            if settings.init == "gpt2" and isinstance(module, Attention | FeedForward):
                writes = module.output if isinstance(module, Attention) else module.narrow
                writes.weight.div_(math.sqrt(2 * settings.layers))
            if settings.init == "t5" and isinstance(module, Attention):
                module.query.weight.mul_(module.d_head**-0.5)
            if settings.init == "t5" and isinstance(module, T5BiasPositions):
                module.table.weight.mul_(settings.d_model**-0.5)
