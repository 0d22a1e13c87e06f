"""Pages of `foreword show` about recipes, families and grids."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from foreword.cleaning.recipe import load_cleaning
from foreword.display.results import Output, ResultTable, Text
from foreword.nn.model import ModelSettings
from foreword.nn.stack_settings import StackSettings
from foreword.probes import _suite
from foreword.runs.dry_run import dummy_vocab
from foreword.runs.recipe import Recipe, load_recipe
from foreword.runs.sizes import MACHINES, count_parameters, require_memory
from foreword.settings import config, describe, kinds


def family_recipes(word: str) -> list[str]:
    """Return the recipes of the family that a word names, `gpt2` or `GPT-2`."""
    tables = {name: config.read(config.RECIPES.find(name)) for name in config.RECIPES.names()}
    return [name for name, t in tables.items() if _letters(t.get("family", "")) == _letters(word)]


def recipes_page(names: Sequence[str] = ()) -> Output:
    """Return the page of all shipped recipes, or of some."""
    recipes = [_summary(name) for name in names or config.RECIPES.names()]
    columns = ("recipe", "parameters", "layers", "d_model", "description")
    rows = [{column: recipe[column] for column in columns} for recipe in recipes]
    return Output([ResultTable(rows)], recipes)


def families_page() -> Output:
    """Return the page of the facts of all recipes, by family."""
    # Collect the values of each fact over the recipes of a family.
    families: dict[str, dict[str, dict[str, None]]] = {}
    for name in config.RECIPES.names():
        recipe = load_recipe(name)
        facts = {
            "architecture": _architecture(recipe),
            "objective": _objective(recipe.objective),
            "positions": _positions(recipe),
            "paper": recipe.paper,
            "recipes": name,
        }
        seen = families.setdefault(recipe.family, {key: {} for key in facts})
        for key, value in facts.items():
            seen[key] |= dict.fromkeys(value.split("; "))

    # Add the kind that converts its weights, and print.
    hf_kinds = _hugging_face_kinds()
    summaries: list[dict[str, Any]] = [
        {
            "family": name,
            **{key: list(values) for key, values in facts.items()},
            "hugging_face": hf_kinds.get(_letters(name)),
        }
        for name, facts in sorted(families.items(), key=lambda pair: pair[0].lower())
    ]
    keys = ("architecture", "objective", "positions", "paper")
    rows = [
        {
            "family": summary["family"],
            **{key: "; ".join(summary[key]) for key in keys},
            "recipes": grouped(summary["recipes"]),
            "import, export": summary["hugging_face"],
        }
        for summary in summaries
    ]
    return Output([ResultTable(rows)], summaries)


def grouped(names: Sequence[str]) -> str:
    """Return `t5_base`, `t5_small` as `t5_{base, small}`, the common prefix first."""
    groups: dict[str, list[list[str]]] = {}
    for name in names:
        words = name.split("_")
        groups.setdefault(words[0], []).append(words)
    patterns = []
    for group in groups.values():
        side_by_side = zip(*group, strict=False)
        common = [same[0] for same in takewhile(lambda words: len({*words}) == 1, side_by_side)]
        first = "_".join(common)
        rests = ["_".join(words[len(common) :]) for words in group if words != common]
        patterns += [first] * (common in group)
        patterns += [f"{first}_{rests[0]}"] if len(rests) == 1 else []
        patterns += [f"{first}_{{{', '.join(rests)}}}"] if len(rests) > 1 else []
    return "; ".join(patterns)


def _architecture(recipe: Recipe) -> str:
    """Return the kinds of model, layout, and attention if it is not dense."""
    parts: list[object] = [recipe.model, recipe.layout]
    if isinstance(recipe.model, StackSettings):
        parts.append(recipe.model.attention)
    return ", ".join(name for part in parts if (name := kinds.name_of(part)) != "dense")


def _positions(recipe: Recipe) -> str:
    """Return the kind of position scheme, or "none"."""
    model = recipe.model
    return kinds.name_of(model.position) if isinstance(model, StackSettings) else "none"


def _objective(objective: Any) -> str:
    """Return its kind, with the kinds it consists of: `sum (masked, next_sentence)`."""
    values = [getattr(objective, f.name) for f in fields(objective) if "part" in f.metadata]
    parts = [kinds.name_of(part) for value in values if isinstance(value, tuple) for part in value]
    components = f" ({', '.join(dict.fromkeys(parts))})" if parts else ""
    return f"{kinds.name_of(objective)}{components}"


def _hugging_face_kinds() -> dict[str, str]:
    """Return the kinds of `interop/hf` by name, and by the families that begin their docstrings."""
    folder = "interop/hf"
    by_name: dict[str, str] = {}
    for name in kinds.names(folder):
        families = describe.first_line(folder, name).partition(" (")[0].split(" and ")
        by_name |= {_letters(word): name for word in (name, *families)}
    return by_name


def _letters(name: str) -> str:
    """Return letters and digits in lower case: `GPT-2` as `gpt2`."""
    return "".join(filter(str.isalnum, name.lower()))


def grids_page() -> Output:
    """Return the page of the shipped grids."""
    tables = {name: config.read(config.GRIDS.find(name)) for name in config.GRIDS.names()}
    grids = [
        {
            "grid": name,
            "cells": [cell.get("label", cell["recipe"]) for cell in table["cells"]],
            "tasks": [task["name"] for task in table.get("tasks", [])],
            "description": table.get("description", ""),
        }
        for name, table in tables.items()
    ]
    return Output([ResultTable(grids)], grids)


def claims_page() -> Output:
    """Return the page of the shipped claims."""
    tables = {name: config.read(config.CLAIMS.find(name)) for name in config.CLAIMS.names()}
    claims = [
        {
            "claim": name,
            "sentence": table["claim"]["sentence"],
            "source": table["claim"]["source"],
            "cells": [cell.get("label", cell["recipe"]) for cell in table["cells"]],
        }
        for name, table in tables.items()
    ]
    return Output([ResultTable(claims)], claims)


def suites_page() -> Output:
    """Return the page of the suites of `foreword tune-suite` and of `foreword probe`."""
    suites = []
    for name in config.SUITES.names():
        table = config.read(config.SUITES.find(name))
        tasks = [f"{task['name']} ({', '.join(task['metrics'])})" for task in table["tasks"]]
        about = table.get("description", "")
        suites.append({"suite": name, "of": "tune-suite", "tasks": tasks, "description": about})
    for name in _suite.names():
        about = describe.first_line("probes", name)
        suites.append({"suite": name, "of": "probe", "tasks": [], "description": about})
    return Output([ResultTable(suites)], suites)


def file_page(path: Path) -> Output:
    """Return the page of a shipped grid or suite: its file, with comments."""
    text = path.read_text(encoding="utf-8")
    return Output([Text(text.rstrip())], tomllib.loads(text))


def cleaning_page() -> Output:
    """Return the page of the shipped recipes of cleaning."""
    rows = []
    for name in config.CLEANING.names():
        recipe = load_cleaning(name)
        steps = [kinds.name_of(step) for step in recipe.clean.steps]
        rows.append({"recipe": name, "steps": steps, "description": recipe.description})
    return Output([ResultTable(rows)], rows)


def cleaning_recipe_page(name: str, assignments: Sequence[str]) -> Output:
    """Return the page of one recipe of cleaning with all its settings."""
    table = config.to_table(load_cleaning(name, assignments))
    return Output([Text(config.dumps(table).rstrip())], {"recipe": name, "settings": table})


def _summary(name: str, assignments: Sequence[str] = ()) -> dict[str, Any]:
    """Return the facts of a recipe; of its model a few layers are built, without weights."""
    recipe = load_recipe(name, assignments)
    if assignments or name not in config.RECIPES.names():
        anywhere = replace(recipe, train=replace(recipe.train, device="auto"))
        require_memory(anywhere, machines=MACHINES)  # or building a part of it could take for ever
    model, vocab = recipe.model, dummy_vocab(recipe.tokenizer)
    parameters = sum(count_parameters(recipe, vocab).values())
    return {
        "recipe": name,
        "parameters": None if model.is_count_based else parameters,  # depends on the text
        "layers": model.layers if isinstance(model, ModelSettings) else None,
        "d_model": model.d_model if isinstance(model, ModelSettings) else None,
        "vocab": vocab.size,
        "description": recipe.description,
    }


def recipe_page(name: str, assignments: Sequence[str]) -> Output:
    """Return the page of one recipe with all its settings."""
    recipe = load_recipe(name, assignments)
    facts = _summary(name, assignments)
    count, vocab = facts["parameters"], facts["vocab"]
    size = f"{count:,} parameters with a vocabulary of {vocab:,}" if count is not None else ""
    return Output(
        [*[Text(size)] * bool(size), Text(recipe.dumps().rstrip())],
        {**facts, "settings": config.to_table(recipe)},
    )
