"""Initialisation: what training begins from."""

from __future__ import annotations

import torch

from foreword.runs.recipe import load_recipe
from tests.tiny import batch, build


def test_residual_maps_of_zero_make_each_block_the_identity() -> None:
    recipe = load_recipe("gpt2_tiny", ["model.zero_init_residual=true"])
    model = build(recipe).eval()
    rows = batch(recipe).to(torch.device("cpu"))
    with torch.no_grad():
        layers = model.backbone.by_layer(rows).layers
    assert layers is not None
    for state in layers[1:-1]:
        assert torch.equal(state, layers[0])
