"""The examples in the documents work."""

from __future__ import annotations

import re
from pathlib import Path

from foreword.runs.recipe import load_recipe
from foreword.settings import config, kinds
from foreword.verbs._reference import reference

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_the_recipe_of_the_page_on_recipes_loads(tmp_path: Path) -> None:
    page = (DOCS / "recipes.md").read_text(encoding="utf-8")
    recipes = []
    for text in re.findall(r"```toml\n(.*?)```", page, re.S):
        file = tmp_path / "my.toml"
        file.write_text(text, encoding="utf-8")
        recipes.append(load_recipe(str(file)))
    recipe, staged, curved, mixture = recipes
    assert [kinds.name_of(part.recipe.objective) for part in staged.segments()] == [
        "causal",
        "masked",
    ]
    assert [one.objective.rate for one in curved.extremes()] == [0.3, 0.05]  # type: ignore[attr-defined]
    assert [source.name for source in mixture.data.sources] == ["wiki", "novels", "textbooks"]
    assert recipe.model.layers == 6  # type: ignore[attr-defined]
    assert kinds.name_of(recipe.objective) == "masked"
    assert recipe.train.tokens == 10**8


def test_the_settings_of_the_page_on_recipes_can_be_set() -> None:
    page = (DOCS / "recipes.md").read_text(encoding="utf-8")
    commands = [
        line for line in page.splitlines() if line.startswith("    foreword pretrain bert_mini")
    ]
    for command in commands:
        settings = [a or b for a, b in re.findall(r'--set (?:"(.+?)"|(\S+))', command)]
        assert settings
        assert load_recipe("bert_mini", settings) != load_recipe("bert_mini")
    assert len(commands) == 4
    assert "bert_mini" in config.RECIPES.names()


def test_the_reference_of_the_verbs_is_up_to_date() -> None:
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    assert page.endswith(reference()), "run python -m foreword.verbs._reference docs/commands.md"
    assert "| --set (Python: settings) | – | NAME=VALUE | a setting of it:" in page
    assert "| progress (Python only) | true |" in page
