"""`foreword show`: list kinds, families, recipes and grids, or show one recipe in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword import config, describe, kinds
from foreword.cli import _kinds, console
from foreword.cli._model_options import Json
from foreword.errors import UserError, nearest

if TYPE_CHECKING:
    from foreword.runs.recipe import Recipe


def show(
    what: Annotated[
        str | None,
        typer.Argument(
            help="kinds, families, recipes, grids; a folder of kinds (objectives, positions); a "
            "kind (masked, rotary); a section (train, read); a family (BERT); the name or file of "
            "a recipe. Default: what there is to show."
        ),
    ] = None,
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of a recipe: model.layers=6.")
    ] = None,
    json: Json = False,
) -> None:
    """List kinds, families, recipes or grids, or show one with its settings.

    A kind's page says what each setting means, its default, its range, and where it is used.
    """
    lists = {
        "families": _show_families,
        "recipes": _show_recipes,
        "kinds": _kinds.all_kinds,
        "grids": _show_grids,
    }
    if what is None:
        _kinds.overview(list(lists), as_json=json)
    elif what.endswith(".toml") or what in config.recipe_names():
        _show_recipe(what, assign or [], as_json=json)
    elif assign:
        raise UserError(f"--set changes a recipe, and '{what}' is not one")
    elif what in lists:
        lists[what](as_json=json)
    elif what in (sections := _kinds.sections()):
        _kinds.section_page(what, sections[what], as_json=json)
    elif folders := _kinds.folders_named(what):
        _kinds.folder_page(folders[0], as_json=json)
    else:
        _show_called(what, as_json=json)


def _show_called(what: str, *, as_json: bool) -> None:
    """Show the kinds of a name, or the recipes of a family, which many importers are named for.

    Raises:
        UserError: there are neither.
    """
    found = _kinds.kinds_named(what)
    is_importer = all(folder == "interop/hf" for folder, _ in found)
    family = _family_recipes(what) if is_importer else []
    if family:
        _show_recipes(as_json=as_json, names=family)
    elif found:
        _kinds.kind_pages(found, as_json=as_json)
    else:
        named = [name for folder in kinds.folders() for name in kinds.names(folder)]
        folders = [folder.rpartition("/")[2] for folder in kinds.folders()]
        words = [*folders, *_kinds.sections(), *named, *config.recipe_names()]
        hint = nearest(what, words)
        if "did you mean" not in hint:
            hint = "; 'foreword show' lists what there is"
        raise UserError(f"nothing is called '{what}'{hint}")


def _family_recipes(word: str) -> list[str]:
    """Return the recipes of the family that a word names, `gpt2` or `GPT-2`."""
    tables = {name: config.read(config.find_recipe(name)) for name in config.recipe_names()}
    return [name for name, t in tables.items() if _letters(t.get("family", "")) == _letters(word)]


def _show_recipes(*, as_json: bool, names: Sequence[str] = ()) -> None:
    recipes = [_summary(name) for name in names or config.recipe_names()]
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
        families = describe.first_line(folder, name).partition(" (")[0].split(" and ")
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
    """Return the facts of a recipe; of its model a few layers are built, without weights."""
    from foreword.runs.dry_run import dummy_vocab
    from foreword.runs.recipe import load_recipe
    from foreword.runs.sizes import MACHINES, count_parameters, require_memory

    recipe = load_recipe(name, assignments or [])
    anywhere = replace(recipe, train=replace(recipe.train, device="auto"))
    require_memory(anywhere, machines=MACHINES)  # or building a part of it could take for ever
    vocab = dummy_vocab(recipe.tokenizer)
    parameters = sum(count_parameters(recipe, vocab).values())
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
