"""T5's grid: its cells are matched, and every one trains."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from foreword.runs.recipe import Recipe, load_recipe

from .test_recipes import built
from .tiny import batch, build

ARCHITECTURES = ("encdec", "shared", "half", "decoder", "prefix")
OBJECTIVES = ("denoising", "lm", "deshuffling")
GRID = [f"t5_grid_{a}_{o}" for a, o in product(ARCHITECTURES, OBJECTIVES)]


def test_the_grids_cells_are_matched_in_parameters_and_flops() -> None:
    """Table 2: with P for one stack, two stacks have 2 P, and the others P; here what is over is
    the attention to the source, which the paper leaves out of its count."""
    sizes = {}
    for architecture in ARCHITECTURES:
        names = [f"t5_grid_{architecture}_{o}" for o in OBJECTIVES]
        recipes = [load_recipe(name) for name in names]
        assert len({recipe.model for recipe in recipes}) == 1
        model = recipes[0].model
        d, crossing = model.d_model, 0
        if architecture not in ("decoder", "prefix"):
            crossing = model.layers * (4 * d * d + d)
        embedding = recipes[0].tokenizer.vocab * d
        sizes[architecture] = built(names[0]).count_parameters() - embedding - crossing
    one = sizes["decoder"]
    assert sizes["prefix"] == one
    assert sizes["encdec"] == 2 * one
    for architecture in ("shared", "half"):
        # A stack has a norm at its end and a table of distances of its own.
        assert sizes[architecture] == one + 256 + 32 * 4


def tiny(name: str) -> Recipe:
    layers = 1 if "half" in name else 2
    small = {"d_model": 32, "heads": 2, "d_head": 16, "d_ff": 64, "layers": layers}
    sizes = [f"model.{key}={value}" for key, value in small.items()]
    return load_recipe(name, [*sizes, "tokenizer.vocab=500", "packing.length=40"])


@pytest.mark.product(few=3)
@pytest.mark.parametrize("name", GRID)
def test_every_cell_of_the_grid_trains(name: str) -> None:
    recipe = tiny(name)
    model, rows, means = build(recipe), batch(recipe, 8), []
    optimizer = recipe.optimizer.build(model)
    for _ in range(6):
        loss = recipe.objective.loss(model, rows)
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        optimizer.step()
        means.append((loss.total / loss.count).item())
    assert means[0] == pytest.approx(np.log(500), abs=1.0)
    assert means[-1] < means[0] - 0.1


@pytest.mark.parametrize("name", ["t5_1.1_small", "ul2_mini"])
def test_an_untied_output_layer_starts_at_chance_loss(name: str) -> None:
    small = ["model.layers=1", "tokenizer.vocab=500", "packing.length=128", "model.d_ff=64"]
    recipe = load_recipe(name, small)
    loss = recipe.objective.loss(build(recipe), batch(recipe, 8))
    # Logits of variance 1 cost half a nat.
    assert (loss.total / loss.count).item() == pytest.approx(np.log(500) + 0.5, abs=0.2)
