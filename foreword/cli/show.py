"""`foreword show`: the kinds there are, the recipes shipped, or one recipe resolved."""

from __future__ import annotations

import ast
from typing import Annotated, Any

import typer

from foreword import config, kinds
from foreword.cli import console
from foreword.cli._looking import Json

FOLDERS = (
    "text/tokenizers",
    "data/readers",
    "data/packing",
    "models",
    "nn/positions",
    "objectives",
    "layouts",
    "train/optim",
    "train/schedule",
    "tune/tasks",
    "tune/strategies",
    "interop/hf",
)


def show(
    what: Annotated[str, typer.Argument(help="kinds, recipes, or a recipe's name or file.")],
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="A setting: model.layers=6.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the kinds there are, the recipes shipped, or one recipe resolved."""
    if what == "kinds":
        _show_kinds(as_json=json)
    elif what == "recipes":
        _show_recipes(as_json=json)
    else:
        _show_recipe(what, assign or [], as_json=json)


def _show_kinds(*, as_json: bool) -> None:
    found = {folder: {n: _first_line(folder, n) for n in kinds.names(folder)} for folder in FOLDERS}
    if as_json:
        console.emit(found)
        return
    rows = [
        [folder if n == 0 else "", name, line]
        for folder, lines in found.items()
        for n, (name, line) in enumerate(lines.items())
    ]
    console.table("", ["folder", "kind", "what it is"], rows)


def _first_line(folder: str, name: str) -> str:
    """The first line of a kind's docstring, read without importing it."""
    files = [kinds.ROOT / folder / f"{stem}.py" for stem in (name, f"{name}_")]
    source = next(file for file in files if file.is_file()).read_text(encoding="utf-8")
    wanted = kinds.class_name(name)
    tree = ast.parse(source)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    texts = [ast.get_docstring(node) for node in classes if node.name == wanted]
    return next((text.splitlines()[0] for text in [*texts, ast.get_docstring(tree)] if text), "")


def _show_recipes(*, as_json: bool) -> None:
    found = [_size(name) for name in config.recipe_names()]
    if as_json:
        console.emit(found)
        return
    columns = ("recipe", "parameters", "layers", "d_model", "description")
    console.table("", columns, [[recipe[column] for column in columns] for recipe in found])


def _size(name: str, assignments: list[str] | None = None) -> dict[str, Any]:
    """A recipe's facts; its model is built on the meta device, where weights take no memory."""
    import numpy as np
    import torch

    from foreword.text.special import ALL, NAMES, SENTINELS
    from foreword.train.recipe import load_recipe
    from foreword.types import Vocab

    recipe = load_recipe(name, assignments or [])
    size = getattr(recipe.tokenizer, "vocab", len(ALL) + 1)
    is_special = np.arange(size) < len(ALL)
    special = {token: n for n, token in enumerate(NAMES)}
    sentinels = np.arange(len(NAMES), len(NAMES) + len(SENTINELS))
    vocab = Vocab(size, special, sentinels, is_special, ~is_special)
    with torch.device("meta"):
        parameters = recipe.build(vocab).count_parameters()
    return {
        "recipe": name,
        "parameters": parameters,
        "layers": recipe.model.layers,
        "d_model": recipe.model.d_model,
        "vocab": size,
        "description": recipe.description,
    }


def _show_recipe(name: str, assignments: list[str], *, as_json: bool) -> None:
    from foreword.train.recipe import load_recipe

    recipe = load_recipe(name, assignments)
    facts = _size(name, assignments)
    if as_json:
        console.emit({**facts, "settings": config.to_table(recipe)})
        return
    console.say(f"{facts['parameters']:,} parameters with a vocabulary of {facts['vocab']:,}")
    console.out.print(recipe.dumps(), markup=False, end="")
