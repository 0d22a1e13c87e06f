"""Every model computes in float64 too, which the gradient probe requires."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from foreword.nn.model import Model
from foreword.probes._reach import gradient_norms
from foreword.runs.recipe import Recipe, load_recipe
from foreword.types import Batch

from .tiny import TRAINED, batch, build


def loss_and_gradients(recipe: Recipe, model: Model, inputs: Batch) -> tuple[Tensor, list[Tensor]]:
    loss = recipe.objective.loss(model, inputs)
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss.total / loss.count, parameters, allow_unused=True)
    return loss.total, [grad for grad in gradients if grad is not None]


@pytest.mark.product(few=6)
@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("name", TRAINED)
def test_float64_gives_the_loss_and_gradients_of_float32(name: str, norm: str) -> None:
    recipe = load_recipe(name)
    recipe = replace(recipe, model=replace(recipe.model, norm=norm))
    single, of = build(recipe).eval(), batch(recipe, 2)
    double = copy.deepcopy(single).double()
    total, grads = loss_and_gradients(recipe, single, of)
    precise, expected = loss_and_gradients(recipe, double, of)
    assert precise.dtype == torch.float64
    torch.testing.assert_close(total.double(), precise, rtol=1e-5, atol=0)
    size = torch.stack([grad.norm() for grad in expected]).norm()
    for grad, right in zip(grads, expected, strict=True):
        assert right.dtype == torch.float64
        assert (grad.double() - right).norm() < 1e-4 * size


# Models that are fitted offline, word vectors, have no states on the way to the loss.
@pytest.mark.product(few=8)
@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("name", [name for name in TRAINED if name != "word2vec_tiny"])
def test_gradient_reach_reads_every_model_in_float64(name: str, norm: str) -> None:
    recipe = load_recipe(name)
    recipe = replace(recipe, model=replace(recipe.model, norm=norm))
    model = build(recipe).eval().double()
    reader = recipe.objective.token_backbone(model)
    norms = gradient_norms(
        model, batch(recipe, 2), reader.first_contextual_layer, positions=2, reader=reader
    )
    assert len(norms.norm) and norms.broken == 0
    assert np.isfinite(norms.norm).all() and norms.norm.max() > 0
