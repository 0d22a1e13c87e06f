"""GPT-3's training as published, and its windows."""

from __future__ import annotations

import pytest
import torch

from foreword.runs.recipe import load_recipe

# Brown et al. 2020, table 2.1: batch in tokens, learning rate.
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


@pytest.mark.parametrize("name", TRAINING)
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
