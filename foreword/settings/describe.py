"""Descriptions of kinds and settings, read from their classes: names, defaults, ranges, meaning.

settings(Masked)[0]      Setting(name='rate', default=0.15, values='above 0, up to 1', ...)
set_by({"": Recipe})     {'nn/positions': ['model.position'], ...}
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from os import PathLike
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Interval

from foreword.settings import config, kinds
from foreword.settings.ranges import hints_of, range_of

ENDLESS = 1e6  # an join end from here on only excludes what cannot be meant
SECTION = re.compile(r"^Attributes:\n((?:[ ]{4}.*\n|\n)*)", re.M)
ENTRY = re.compile(r"^    (\w+(?:, \w+)*): ((?:.+\n?)(?: {8}.*\n?)*)", re.M)


@dataclass(frozen=True)
class Setting:
    """One setting of a kind or of a section of the recipe.

    Attributes:
        name: as in recipes.
        default: the default as recipes write it; None if there is none.
        values: what it may be, in words.
        meaning: what it does.
        is_required: whether it must be given.
    """

    name: str
    default: Any
    values: str
    meaning: str
    is_required: bool = False


@dataclass(frozen=True)
class KindDescription:
    """A kind: what it is, where it is used, and its settings.

    Attributes:
        folder: the folder of its kinds.
        name: its name in recipes.
        text: its docstring without the attributes.
        other_names: what else it is called.
        set_by: the settings that it may be the value of (`model.position`).
        settings: its own settings.
    """

    folder: str
    name: str
    text: str
    other_names: list[str]
    set_by: list[str]
    settings: list[Setting]


def kind(folder: str, name: str, roots: Mapping[str, type]) -> KindDescription:
    """Return the description of the kind `name` of `folder`.

    Args:
        folder: the folder of its kinds.
        name: its name.
        roots: as in `set_by`.

    Raises:
        UserError: there is no such kind.
    """
    text = SECTION.sub("", kinds.docstring(folder, name) + "\n")
    text = re.sub(r"^Also called: .*\n", "", text, flags=re.M)
    cls = kinds.load(folder, name)
    own_settings = settings(cls) if is_dataclass(cls) else []
    others = kinds.other_names(folder, name)
    where = [path for path in set_by(roots).get(folder, []) if path]
    return KindDescription(
        folder, name, re.sub(r"\n{3,}", "\n\n", text).strip(), others, where, own_settings
    )


def first_line(folder: str, name: str) -> str:
    """Return the first line of a kind's docstring, without importing it."""
    return next(iter(kinds.docstring(folder, name).splitlines()), "")


def settings(cls: Any) -> list[Setting]:
    """Return the settings of a dataclass, in order, those of its base classes first."""
    meanings_of_fields = meanings(cls)
    hints = hints_of(cls)
    return [
        Setting(
            name=f.name,
            default=_default(f),
            values=_values(f, hints[f.name]),
            meaning=meanings_of_fields.get(f.name, ""),
            is_required=f.default is f.default_factory is MISSING,
        )
        for f in fields(cls)
        if f.init
    ]


def sections(root: type) -> dict[str, type]:
    """Return the plain tables of a recipe's settings by name: `train`, `read`, `prepare`."""
    tables = {name: _table_of(hint) for name, hint in hints_of(root).items()}
    return {
        f.name: table
        for f in fields(root)
        if "part" not in f.metadata and (table := tables[f.name]) is not None
    }


def _table_of(hint: Any) -> type | None:
    """Return the dataclass of a setting that is a table, perhaps one that may be left out."""
    types = (one for one in (hint, *get_args(hint)) if isinstance(one, type))
    return next((one for one in types if is_dataclass(one)), None)


def set_by(roots: Mapping[str, type]) -> dict[str, list[str]]:
    """Return by folder of kinds the settings whose value is one of them.

    Args:
        roots: the dataclasses of all settings, by the prefix of their names ("" for the recipe).
    """
    paths: dict[str, list[str]] = {}
    for prefix, root in roots.items():
        for folder, path in _parts(root, prefix, ()):
            if path not in paths.setdefault(folder, []):
                paths[folder].append(path)
    return paths


def _parts(cls: Any, prefix: str, above: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the folder and the name of each setting below `cls` that is a kind."""
    hints = hints_of(cls)
    for f in fields(cls):
        path = f"{prefix}.{f.name}" if prefix else f.name
        if "part" in f.metadata:
            folder = f.metadata["part"].folder
            yield folder, f"{path}[0]" if get_origin(hints[f.name]) is tuple else path
            if folder not in above:
                for name in kinds.names(folder):
                    inner = kinds.load(folder, name)
                    if is_dataclass(inner):
                        yield from _parts(inner, path, (*above, folder))
        elif is_dataclass(hints[f.name]):
            yield from _parts(hints[f.name], path, above)


def meanings(cls: type) -> dict[str, str]:
    """Return the text of each attribute in the docstrings of a class and its bases."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        section = SECTION.search(inspect.cleandoc(base.__doc__ or "") + "\n")
        for names, text in ENTRY.findall(section[1]) if section else ():
            texts |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return texts


def _default(f: Field[Any]) -> Any:
    """Return the default of a field as recipes write it: a kind with settings as a table."""
    value = f.default_factory() if f.default_factory is not MISSING else f.default
    if value is MISSING:
        return None
    if "part" in f.metadata:
        items = value if isinstance(value, tuple) else [value] if value is not None else []
        named = [kinds.name_of(item) for item in items]
        return named if isinstance(value, tuple) else next(iter(named), None)
    if is_dataclass(value) and not isinstance(value, type):
        return config.to_table(value)
    return list(value) if isinstance(value, tuple) else value


def _values(f: Field[Any], hint: Any) -> str:
    """Return what a setting may be, in words."""
    if "part" in f.metadata:
        folder = f.metadata["part"].folder
        is_list = get_origin(hint) is tuple
        return f"{'list of kinds' if is_list else 'a kind'} of {folder}"
    return _in_words(hint)


def _in_words(hint: Any) -> str:
    origin, args = get_origin(hint), get_args(hint)
    if (number_range := range_of(hint)) is not None:
        return _range(*number_range)
    if origin is Annotated:  # with a word of its own, such as "path"
        return next((note for note in args[1:] if isinstance(note, str)), _in_words(args[0]))
    if origin in (Union, types.UnionType):
        words = [_in_words(arg) for arg in args if arg is not type(None)]
        return " or ".join(dict.fromkeys(filter(None, words)))
    if origin is Literal:
        return ", ".join(map(str, args))
    if origin in (tuple, list, Sequence, Iterable):
        return f"list of: {_in_words(args[0])}"
    if origin is PathLike:
        return "path"
    if origin is Mapping:
        return "table"
    if is_dataclass(hint):
        return "table: " + ", ".join(f.name for f in fields(hint))
    names = {bool: "true, false", str: "text", int: "whole number", float: "number"}
    return names.get(hint, "")


def _range(number: type, interval: Interval) -> str:
    """Return a range in few words: `above 0, up to 1`; ends that exclude nothing are left out."""
    noun = "whole, " if number is int else ""
    lower: Any = interval.ge
    upper: Any = interval.le if interval.le is not None else interval.lt
    low = f"from {lower:g}" if lower is not None else f"above {interval.gt:g}"
    if float(upper) >= ENDLESS:
        return f"{noun}{low}"
    join = " to" if lower is not None else ", up to"
    below = " below" if interval.le is None else ""
    return f"{noun}{low}{join}{below} {upper:g}"
