"""The published sizes of GPT-1, GPT-2 and GPT-3, counted without memory."""

from __future__ import annotations

import pytest
import torch

from foreword.runs.recipe import Recipe, load_recipe
from tests.tiny import vocab


def count(recipe: Recipe) -> int:
    with torch.device("meta"):
        return recipe.build(vocab(recipe.tokenizer.vocab)).count_parameters()


def test_gpt1_has_the_parameters_of_the_released_weights() -> None:
    assert count(load_recipe("gpt1")) == 116_534_784  # `openai-gpt`


GPT2 = {"small": 124_439_808, "medium": 354_823_168, "large": 774_030_080, "xl": 1_557_611_200}


@pytest.mark.parametrize("name", GPT2)
def test_gpt2_has_the_parameters_of_the_released_weights(name: str) -> None:
    assert count(load_recipe(f"gpt2_{name}")) == GPT2[name]


# Brown et al. 2020, table 2.1: the number as printed, and half of what its last digit is worth.
GPT3 = {
    "125m": (125e6, 0.5e6),
    "350m": (350e6, 10e6),  # printed to two digits, and cut: 355.9 M
    "760m": (760e6, 5e6),
    "1.3b": (1.3e9, 0.05e9),
    "2.7b": (2.7e9, 0.05e9),
    "6.7b": (6.7e9, 0.05e9),
    "13b": (13e9, 0.5e9),
    "175b": (175e9, 0.5e9),
}
# The same table: batch in tokens, learning rate.
TRAINING = {
    "125m": (0.5e6, 6.0e-4),
    "350m": (0.5e6, 3.0e-4),
    "760m": (0.5e6, 2.5e-4),
    "1.3b": (1e6, 2.0e-4),
    "2.7b": (1e6, 1.6e-4),
    "6.7b": (2e6, 1.2e-4),
    "13b": (2e6, 1.0e-4),
    "175b": (3.2e6, 0.6e-4),
}


@pytest.mark.product
@pytest.mark.parametrize("name", GPT3)
def test_gpt3_has_the_parameters_of_the_table(name: str) -> None:
    printed, half_a_digit = GPT3[name]
    assert count(load_recipe(f"gpt3_{name}")) == pytest.approx(printed, abs=half_a_digit)


@pytest.mark.parametrize("name", GPT3)
def test_gpt3_has_the_batch_and_learning_rate_of_its_table(name: str) -> None:
    recipe = load_recipe(f"gpt3_{name}")
    tokens, lr = TRAINING[name]
    step = recipe.rows_per_step * recipe.packing.length
    assert recipe.packing.length == 2048
    assert step == pytest.approx(tokens, rel=0.05)  # "0.5M" is 2^19
    assert recipe.optimizer.lr == lr
    assert recipe.schedule.warmup.steps * step == pytest.approx(375e6, rel=0.01)
    assert recipe.train.tokens == 300e9


def test_every_second_layer_of_gpt3_has_a_window() -> None:
    with torch.device("meta"):
        backbone = load_recipe("gpt3_175b").model.build(1_000)
    assert [kind.is_dense for kind in backbone.stack.attention_kinds] == [True, False] * 48
