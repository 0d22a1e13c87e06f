"""The benchmark of pretraining: its models are the recipes' own."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreword.runs.recipe import Recipe
from foreword.settings import config

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_every_family_makes_a_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import pretrain

    for name, family in pretrain.FAMILIES.items():
        table = pretrain.recipe_table(family | {"size": pretrain.SIZES["mini"]})
        recipe = config.build(Recipe, table)
        assert recipe.model.d_model == 256, name
