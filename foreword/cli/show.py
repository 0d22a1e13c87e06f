"""`foreword show`: list kinds, families, recipes and grids, or show one recipe in full."""

from __future__ import annotations

import ast
from dataclasses import fields
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword import config, kinds
from foreword.cli import console
from foreword.cli._model_options import Json
from foreword.errors import UserError

if TYPE_CHECKING:
    from foreword.runs.recipe import Recipe


def show(
    what: Annotated[
        str, typer.Argument(help="kinds, families, recipes, grids, or the name of a recipe.")
    ],
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="A setting: model.layers=6.")
    ] = None,
    json: Json = False,
) -> None:
    """List the kinds, families, recipes or grids, or show one recipe with all its settings."""
    if what == "kinds":
        _show_kinds(as_json=json)
    elif what == "families":
        _show_families(as_json=json)
    elif what == "grids":
        _show_grids(as_json=json)
    elif what == "recipes":
        _show_recipes(as_json=json)
    else:
        _show_recipe(what, assign or [], as_json=json)


def _show_kinds(*, as_json: bool) -> None:
    descriptions = {
        folder: {name: _first_line(folder, name) for name in kinds.names(folder)}
        for folder in kinds.folders()
    }
    if as_json:
        console.emit(descriptions)
        return
    rows = [
        [folder if n == 0 else "", name, line]
        for folder, lines in descriptions.items()
        for n, (name, line) in enumerate(lines.items())
    ]
    console.table("", ["folder", "kind", "what it is"], rows)


def _first_line(folder: str, name: str) -> str:
    """Return the first line of a kind's docstring, without importing it."""
    file = kinds.file_of(folder, name)
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError) as error:  # a plug-in's
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise UserError(f"{file}{line}: plug-in: {type(error).__name__}: {error}") from error
    class_name = kinds.class_name(name)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    texts = [ast.get_docstring(node) for node in classes if node.name.lower() == class_name]
    return next((text.splitlines()[0] for text in [*texts, ast.get_docstring(tree)] if text), "")


def _show_recipes(*, as_json: bool) -> None:
    recipes = [_summary(name) for name in config.recipe_names()]
    if as_json:
        console.emit(recipes)
        return
    columns = ("recipe", "parameters", "layers", "d_model", "description")
    rows = [[recipe[column] for column in columns] for recipe in recipes]
    console.table("", columns, [["–" if cell is None else cell for cell in row] for row in rows])


def _show_families(*, as_json: bool) -> None:
    """Show the facts of all recipes, by family."""
    from foreword.runs.recipe import load_recipe

    # Collect the values of each fact over the recipes of a family.
    families: dict[str, dict[str, dict[str, None]]] = {}
    for name in config.recipe_names():
        recipe = load_recipe(name)
        position = getattr(recipe.model, "position", None)
        facts = {
            "architecture": _architecture(recipe),
            "objective": _objective(recipe.objective),
            "positions": "none" if position is None else kinds.name_of(position),
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
    if as_json:
        console.emit(summaries)
        return
    keys = ("architecture", "objective", "positions", "paper")
    rows = [
        [
            one["family"],
            *("; ".join(one[key]) for key in keys),
            _grouped(one["recipes"]),
            one["hugging_face"] or "–",
        ]
        for one in summaries
    ]
    console.table("", ["family", *keys, "recipes", "import, export"], rows)


def _grouped(names: list[str]) -> str:
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
    attention = getattr(recipe.model, "attention", None)
    parts = [recipe.model, recipe.layout, *([attention] if attention is not None else [])]
    return ", ".join(name for part in parts if (name := kinds.name_of(part)) != "dense")


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
        families = _first_line(folder, name).partition(" (")[0].split(" and ")
        by_name |= {_letters(word): name for word in (name, *families)}
    return by_name


def _letters(name: str) -> str:
    """Return letters and digits in lower case: `GPT-2` as `gpt2`."""
    return "".join(filter(str.isalnum, name.lower()))


def _show_grids(*, as_json: bool) -> None:
    tables = {name: config.read(config.find_grid(name)) for name in config.grid_names()}
    grids = [
        {
            "grid": name,
            "cells": [cell.get("label", cell["recipe"]) for cell in table["cells"]],
            "tasks": [task["name"] for task in table.get("tasks", [])],
            "description": table.get("description", ""),
        }
        for name, table in tables.items()
    ]
    if as_json:
        console.emit(grids)
        return
    rows = [[", ".join(v) if isinstance(v, list) else v for v in one.values()] for one in grids]
    console.table("", ["grid", "cells", "tasks", "description"], rows)


def _summary(name: str, assignments: list[str] | None = None) -> dict[str, Any]:
    """Return the facts of a recipe; its model is built on the meta device, without memory."""
    import torch

    from foreword.runs.dry_run import dummy_vocab
    from foreword.runs.recipe import load_recipe

    recipe = load_recipe(name, assignments or [])
    vocab = dummy_vocab(recipe.tokenizer)
    with torch.device("meta"):
        parameters = recipe.build(vocab).count_parameters()
    return {
        "recipe": name,
        "parameters": None if recipe.model.is_count_based else parameters,  # depends on the text
        "layers": getattr(recipe.model, "layers", None),
        "d_model": getattr(recipe.model, "d_model", None),
        "vocab": vocab.size,
        "description": recipe.description,
    }


def _show_recipe(name: str, assignments: list[str], *, as_json: bool) -> None:
    from foreword.runs.recipe import load_recipe

    recipe = load_recipe(name, assignments)
    facts = _summary(name, assignments)
    if as_json:
        console.emit({**facts, "settings": config.to_table(recipe)})
        return
    if facts["parameters"] is not None:
        console.say(f"{facts['parameters']:,} parameters with a vocabulary of {facts['vocab']:,}")
    console.out.print(recipe.dumps(), markup=False, end="")
