"""Pages of `foreword show` about kinds: a folder of them, one with its settings, a section."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from typing import Any

from foreword import config, describe, kinds, stored
from foreword.cli import console
from foreword.describe import KindDescription, Setting

# How the kinds are used that no setting takes.
USED_BY = {
    "probes": "foreword probe RUN --kind {name}",
    "interop/hf": "foreword import FOLDER --format hf; foreword export RUN --format hf",
    "interop/formats": "foreword export RUN --format {name}; some for import too",
    "data/readers": "chosen by the ending of a file's name",
    "tune/tasks": "foreword tune RUN --task {name}",
    "tune/strategies": "foreword tune RUN --strategy {name}",
}


def overview(lists: Sequence[str], *, as_json: bool) -> None:
    """Show what there is to show."""
    folders = {folder: kinds.names(folder) for folder in kinds.folders()}
    if as_json:
        console.emit({"lists": lists, "sections": list(sections()), "folders": folders})
        return
    _definitions(
        {
            "lists": ", ".join(lists),
            "a recipe": "bert_mini, gpt2_mini, ... or a file; 'foreword show recipes' lists them",
            "a section": ", ".join(sections()),
        }
    )
    console.out.print("\n  or a folder of kinds, or one of its kinds:\n", markup=False)
    _definitions({folder.rpartition("/")[2]: console.some(folders[folder]) for folder in folders})


def all_kinds(*, as_json: bool) -> None:
    """Show every kind by folder."""
    descriptions = {folder: _lines(folder) for folder in kinds.folders()}
    if as_json:
        console.emit(descriptions)
        return
    for folder, lines in descriptions.items():
        console.out.print(folder, style="bold", markup=False)
        _definitions(lines)
        console.out.print()


def folders_named(word: str) -> list[str]:
    """Return the folders that a word names: `nn/positions`, `positions` or `position`."""
    return [
        folder
        for folder in kinds.folders()
        if word in (folder, folder.rpartition("/")[2], folder.rpartition("/")[2].removesuffix("s"))
    ]


def kinds_named(word: str) -> list[tuple[str, str]]:
    """Return folder and name of each kind that a word names; `nn/positions/rotary` is one."""
    folder, slash, name = word.rpartition("/")
    if slash:
        return [(folder, found) for found in kinds.called(folder, name)]
    return [(one, name) for one in kinds.folders() for name in kinds.called(one, word)]


def folder_page(folder: str, *, as_json: bool) -> None:
    """Show the kinds of a folder and how one is chosen."""
    where = [path for path in describe.places(_roots()).get(folder, []) if path]
    if as_json:
        console.emit({"folder": folder, "places": where, "kinds": _lines(folder)})
        return
    _definitions(_lines(folder))
    console.out.print()
    chosen = _chosen_by(folder, "NAME", where)
    _definitions({"chosen by": chosen, "one of them": "foreword show NAME"})


def kind_pages(found: Sequence[tuple[str, str]], *, as_json: bool) -> None:
    """Show kinds with their settings, where they may be used, and the recipes that have them."""
    pages = [describe.kind(folder, name, _roots()) for folder, name in found]
    if as_json:
        console.emit(
            [{**asdict(page), "recipes": _recipes(page.folder, page.name)} for page in pages]
        )
        return
    for number, page in enumerate(pages):
        if number:
            console.out.print("\n")
        _kind_page(page)


def _kind_page(page: KindDescription) -> None:
    others = f"  (also called {', '.join(page.other_names)})" if page.other_names else ""
    console.out.print(f"{page.folder}/{page.name}{others}", style="bold", markup=False)
    console.out.print()
    console.out.print(textwrap.indent(page.text, "  "), markup=False)
    if page.settings:
        console.out.print()
        settings_table(page.settings)
    console.out.print()
    settable = next((one for one in page.settings if one.default is not None), None)
    lines = {"chosen by": _chosen_by(page.folder, page.name, page.places)}
    if page.places and settable is not None:
        lines["set by"] = f"--set {page.places[0]}.{settable.name}={_shown(settable.default)}"
    if recipes := _recipes(page.folder, page.name):
        lines["recipes"] = console.some(recipes)
    _definitions(lines)


def section_page(name: str, cls: type, *, as_json: bool) -> None:
    """Show the settings of a section of the recipe, such as `train`."""
    own = describe.settings(cls)
    if as_json:
        console.emit({"section": name, "settings": [asdict(one) for one in own]})
        return
    settings_table(own)
    _definitions({"set by": f"--set {name}.NAME=VALUE, or [{name}] in a recipe"})


def settings_table(own: Sequence[Setting]) -> None:
    """Print settings with their defaults, possible values and meaning."""
    rows = [
        [one.name, "required" if one.is_required else _shown(one.default), one.values, one.meaning]
        for one in own
    ]
    console.table("", ["setting", "default", "values", "meaning"], rows)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else stored.to_json(value)


def _chosen_by(folder: str, name: str, where: Sequence[str]) -> str:
    if where:
        return ", or ".join(f"--set {path}={name}" for path in where[:3])
    return USED_BY.get(folder, "").format(name=name)


def _lines(folder: str) -> dict[str, str]:
    """Return the first line of each kind's docstring."""
    return {name: describe.first_line(folder, name) for name in kinds.names(folder)}


def _definitions(lines: dict[str, str]) -> None:
    """Print names with their texts beside them, wrapped to the window."""
    indent = max(map(len, lines), default=0) + 4
    for name, line in lines.items():
        wrapped = textwrap.wrap(line, max(console.out.width - indent - 1, 24)) or [""]
        console.out.print(f"  {name:<{indent - 2}}{wrapped[0]}", markup=False)
        for more in wrapped[1:]:
            console.out.print(" " * indent + more, markup=False)


@cache
def _roots() -> dict[str, type]:
    from foreword.runs.recipe import Recipe
    from foreword.tune.fine_tuner import TuneSettings

    return {"": Recipe, "tune": TuneSettings}


def _recipes(folder: str, name: str) -> list[str]:
    """Return the shipped recipes that contain a kind."""
    from foreword.runs.recipe import load_recipe

    cls = kinds.load(folder, name)
    return [
        recipe
        for recipe in config.recipe_names()
        if any(type(value) is cls for value in _values(load_recipe(recipe)))
    ]


def _values(settings: Any) -> Iterator[Any]:
    """Yield the values below a dataclass of settings."""
    if isinstance(settings, tuple):
        for item in settings:
            yield from _values(item)
    elif is_dataclass(settings):
        yield settings
        for f in fields(settings):
            yield from _values(getattr(settings, f.name))


def sections() -> dict[str, type]:
    """Return the sections of a recipe that are no kinds: `train`, `read`, `prepare`."""
    from foreword.runs.recipe import Recipe

    return describe.sections(Recipe)
