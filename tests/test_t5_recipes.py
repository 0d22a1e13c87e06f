"""T5's and UL2's sizes as published, and T5's grid: every cell trains."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch

from foreword.data.rng import RowRng
from foreword.nn.init import initialise
from foreword.runs.recipe import Recipe, load_recipe
from foreword.text import special
from foreword.types import Rows, Vocab

ARCHITECTURES = ("encdec", "shared", "half", "decoder", "prefix")
OBJECTIVES = ("denoising", "lm", "deshuffling")
GRID = [f"t5_grid_{a}_{o}" for a, o in product(ARCHITECTURES, OBJECTIVES)]
FIRST = len(special.ALL)

# All parameters of the released weights, a tied output layer once.
PUBLISHED = {
    "t5_small": 60_506_624,
    "t5_base": 222_903_552,
    "t5_large": 737_668_096,
    "t5_3b": 2_851_598_336,
    "t5_11b": 11_307_321_344,
    "t5_1.1_small": 76_961_152,
    "t5_1.1_base": 247_577_856,
    "t5_1.1_large": 783_150_080,
    "t5_1.1_xl": 2_849_757_184,
    "t5_1.1_xxl": 11_135_332_352,
}
# Raffel et al. 2020, section 3.7: cut after two digits, and the third counts the tied layer twice.
CUT = {"t5_small": "60M", "t5_base": "220M", "t5_large": "770M", "t5_3b": "2.8B", "t5_11b": "11B"}


def vocab(size: int) -> Vocab:
    return Vocab(
        size=size,
        special={name: n for n, name in enumerate(special.NAMES)},
        sentinels=np.arange(len(special.NAMES), FIRST),
        is_special=np.arange(size) < FIRST,
        starts_word=np.ones(size, dtype=bool),
    )


def count(recipe: Recipe) -> int:
    with torch.device("meta"):
        return recipe.build(vocab(recipe.tokenizer.vocab)).count_parameters()


@pytest.mark.product(few=4)
@pytest.mark.parametrize("name", PUBLISHED)
def test_recipes_have_the_parameters_of_the_released_weights(name: str) -> None:
    assert count(load_recipe(name)) == PUBLISHED[name]


def in_words(count: float, digits: int) -> str:
    """Cut a number after `digits` digits."""
    size, unit = (count / 1e9, "B") if count >= 1e9 else (count / 1e6, "M")
    step = 10.0 ** (math.floor(math.log10(size)) + 1 - digits)
    return f"{math.floor(size / step) * step:.{max(0, -round(math.log10(step)))}f}{unit}"


@pytest.mark.parametrize("name", CUT)
def test_recipes_have_the_parameters_of_their_papers(name: str) -> None:
    recipe = load_recipe(name)
    twice = recipe.tokenizer.vocab * recipe.model.d_model if name == "t5_large" else 0
    assert in_words(count(recipe) + twice, 2) == CUT[name]


def test_ul2_has_the_20_billion_of_its_paper() -> None:
    assert round(count(load_recipe("ul2_20b")) / 1e9) == 20  # Tay et al. 2022, section 5: "20B"


def test_the_grids_cells_are_matched_in_parameters_and_flops() -> None:
    """Table 2: with P for one stack, two stacks have 2 P, and the others P; here what is over is
    the attention to the source, which the paper leaves out of its count."""
    sizes = {}
    for architecture in ARCHITECTURES:
        recipes = [load_recipe(f"t5_grid_{architecture}_{o}") for o in OBJECTIVES]
        assert len({recipe.model for recipe in recipes}) == 1
        model = recipes[0].model
        d, crossing = model.d_model, 0
        if architecture not in ("decoder", "prefix"):
            crossing = model.layers * (4 * d * d + d)
        embedding = recipes[0].tokenizer.vocab * d
        sizes[architecture] = count(recipes[0]) - embedding - crossing
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
    words, random = vocab(recipe.tokenizer.vocab), np.random.default_rng(1)
    model = recipe.build(words)
    initialise(model, 1)
    optimizer = recipe.optimizer.build(model)
    ids = np.tile(random.integers(FIRST, words.size, 40), (8, 1))
    means = []
    for _ in range(6):
        rows = Rows(ids, np.zeros_like(ids), np.tile(np.arange(40), (8, 1)), np.arange(8))
        example = recipe.objective.corrupt(rows, RowRng(1, rows.numbers), words)
        loss = recipe.objective.loss(model, recipe.layout.arrange(example, words).to("cpu"))
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        optimizer.step()
        means.append((loss.total / loss.count).item())
    assert means[0] == pytest.approx(np.log(words.size), abs=1.0)
    assert means[-1] < means[0] - 0.1


@pytest.mark.parametrize("name", ["t5_1.1_small", "ul2_mini"])
def test_an_untied_output_layer_starts_at_chance_loss(name: str) -> None:
    recipe = load_recipe(
        name, ["model.layers=1", "tokenizer.vocab=500", "packing.length=128", "model.d_ff=64"]
    )
    words = vocab(500)
    model = recipe.build(words)
    initialise(model, 1)
    ids = np.random.default_rng(2).integers(FIRST, 500, (8, 128))
    rows = Rows(ids, np.zeros_like(ids), np.tile(np.arange(128), (8, 1)), np.arange(8))
    example = recipe.objective.corrupt(rows, RowRng(1, rows.numbers), words)
    loss = recipe.objective.loss(model, recipe.layout.arrange(example, words).to("cpu"))
    # Logits of variance 1 cost half a nat.
    assert (loss.total / loss.count).item() == pytest.approx(np.log(500) + 0.5, abs=0.2)
