"""Pages of `foreword show` about kinds: a folder of them, one with its settings, a section."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from typing import Any

from foreword.disk import stored
from foreword.display.results import Definitions, Heading, Output, Part, ResultTable, Text
from foreword.display.tables import NARROW, out, some, wrapped
from foreword.planning.dial import FAMILIES
from foreword.settings import config, describe, kinds
from foreword.settings.describe import KindDescription, Setting
from foreword.verbs._reference import argument_rows

# How the kinds are used that no setting takes.
USED_BY = {
    "probes": "foreword probe RUN {name}",
    "interop/hf": "foreword import FOLDER --format hf; foreword export RUN --format hf",
    "interop/formats": "foreword export RUN --format {name}; some for import too",
    "data/readers": "chosen by the ending of a file's name",
    "tuning/tasks": "foreword tune RUN --task {name}",
    "verbs/claims": "foreword claims {name}",
    "verbs/lab": "foreword lab {name}",
    "verbs/scale": "foreword scale {name}",
    "verbs/tokenizer": "foreword tokenizer {name}",
    "verbs": "foreword {name}, or foreword.{name}() in Python",
    "trackers": "--track {name}, with pretrain, resume and tune",
    "tuning/candidates": "foreword tune RUN --set tune.strategy.candidates=[{name}]",
    "tuning/strategies": "foreword tune RUN --strategy {name}",
}


def overview(lists: Sequence[str]) -> Output:
    """Return the page of what there is to show."""
    folders = {folder: kinds.names(folder) for folder in kinds.folders()}
    names = list(sections())

    to_show = {
        "lists": ", ".join(lists),
        "a recipe": "bert_mini, gpt2_mini, ... or a file; 'show recipes' lists them",
        "a section": ", ".join(names),
        "a dial": ", ".join(FAMILIES),
    }
    kinds_of = {folder.rpartition("/")[2]: ", ".join(folders[folder]) for folder in folders}
    return Output(
        [
            Definitions(to_show),
            Text("\n  or a folder of kinds, or one of its kinds:\n"),
            Definitions(kinds_of),
        ],
        {"lists": list(lists), "sections": names, "folders": folders},
    )


def all_kinds() -> Output:
    """Return the page of every kind, by folder."""
    descriptions = {folder: _lines(folder) for folder in kinds.folders()}
    parts: list[Part] = []
    for folder, lines in descriptions.items():
        parts += [Heading(folder), Definitions(lines), Text("")]
    return Output(parts, descriptions)


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
        return [(folder, kind) for kind in kinds.called(folder, name)]
    return [(parent, name) for parent in kinds.folders() for name in kinds.called(parent, word)]


def folder_page(folder: str) -> Output:
    """Return the page of a folder's kinds and how one is chosen."""
    where = [path for path in describe.set_by(_roots()).get(folder, []) if path]
    lines = _lines(folder)
    chosen = _chosen_by(folder, "NAME", where)
    ways = Definitions({"chosen by": chosen, "one of them": "foreword show NAME"})
    content = {"folder": folder, "set_by": where, "kinds": lines}
    return Output([Definitions(lines), Text(""), ways], content)


def kind_pages(names: Sequence[tuple[str, str]]) -> Output:
    """Return the page of kinds: their settings, where they may be used, recipes that have them."""
    described = [describe.kind(folder, name, _roots()) for folder, name in names]
    recipes = [_recipes(kind.folder, kind.name) for kind in described]
    parts: list[Part] = []
    for kind, users in zip(described, recipes, strict=True):
        parts += [*[Text("\n")] * bool(parts), *_kind_parts(kind, users)]
    pairs = zip(described, recipes, strict=True)
    return Output(parts, [{**asdict(kind), "recipes": users} for kind, users in pairs])


def _kind_parts(page: KindDescription, recipes: Sequence[str]) -> list[Part]:
    others = f"  (also called {', '.join(page.other_names)})" if page.other_names else ""
    narrow = "\n\n".join(wrapped(part, 2) for part in page.text.split("\n\n"))
    text = narrow if out.width < NARROW else textwrap.indent(page.text, "  ")
    heading = Heading(wrapped(f"{page.folder}/{page.name}{others}"))
    settings: list[Part] = []
    if page.folder.startswith("verbs"):
        rows = argument_rows(kinds.load(page.folder, page.name))
        settings = [Text(""), ResultTable(rows)]
    elif page.settings:
        settings = [Text(""), settings_table(page.settings)]
    settable = next((setting for setting in page.settings if setting.default is not None), None)
    lines = {"chosen by": _chosen_by(page.folder, page.name, page.set_by)}
    if page.set_by and settable is not None:
        lines["set by"] = f"--set {page.set_by[0]}.{settable.name}={_shown(settable.default)}"
    if recipes:
        lines["recipes"] = some(recipes)
    return [heading, Text(""), Text(text), *settings, Text(""), Definitions(lines)]


def section_page(name: str, cls: type) -> Output:
    """Return the page of a section, such as `train`."""
    settings = describe.settings(cls)
    places = " of 'foreword tune'" if name == "tune" else f", or [{name}] in a recipe"
    return Output(
        [
            settings_table(settings),
            Definitions({"set by": f"--set {name}.NAME=VALUE{places}"}),
        ],
        {"section": name, "settings": [asdict(setting) for setting in settings]},
    )


def settings_table(settings: Sequence[Setting]) -> ResultTable:
    """Return settings with their defaults, possible values and meaning."""
    return ResultTable(
        [
            {
                "setting": setting.name,
                "default": "required" if setting.is_required else _shown(setting.default),
                "values": setting.values,
                "meaning": setting.meaning,
            }
            for setting in settings
        ]
    )


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else stored.to_json(value)


def _chosen_by(folder: str, name: str, where: Sequence[str]) -> str:
    if where:
        return ", or ".join(f"--set {path}={name}" for path in where[:3])
    return USED_BY.get(folder, "").format(name=name)


def _lines(folder: str) -> dict[str, str]:
    return {name: describe.first_line(folder, name) for name in kinds.names(folder)}


@cache
def _roots() -> dict[str, type]:
    from foreword.cleaning.recipe import CleanSettings
    from foreword.runs.recipe import Recipe
    from foreword.tuning.settings import TuneSettings

    return {"": Recipe, "tune": TuneSettings, "clean": CleanSettings}


def _recipes(folder: str, name: str) -> list[str]:
    """Return the shipped recipes that contain a kind."""
    from foreword.runs.recipe import load_recipe

    cls = kinds.load(folder, name)
    return [
        recipe
        for recipe in config.RECIPES.names()
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
    """Return the sections that are not kinds: `train`, `read`, `prepare`, `tune` and `clean`."""
    return describe.sections(_roots()[""]) | {name: root for name, root in _roots().items() if name}
