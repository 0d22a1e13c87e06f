"""File = kind: the folder is the list of kinds, and only the file asked for is imported.

`objectives/span_corruption.py` holds the one public class `SpanCorruption`, a frozen dataclass
whose fields are its settings. Adding a kind is adding a file; there is no registry. The file may
also stand in a plug-in, a folder outside the package that is laid out like it (`plugins`). In a
folder with a module `_toml`, a kind may be a TOML file, of which its `kind_of` makes the class.
"""

from __future__ import annotations

import ast
import functools
import keyword
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from foreword.errors import UserError, nearest
from foreword.settings import plugins

ROOT = plugins.SHIPPED.folder


@dataclass(frozen=True)
class Part:
    """The metadata of a dataclass field that holds a kind.

    Attributes:
        folder: the folder of the kinds.
        default: the kind if the recipe names none.
        settings: settings of the default kind that differ from its own defaults.
    """

    folder: str
    default: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def part(
    folder: str, default: str | None = None, *, is_optional: bool = False, **settings: Any
) -> Any:
    """Return a dataclass field whose value is a kind of a folder (`"nn/positions"`).

    Args:
        folder: the folder of the kinds.
        default: the kind if the recipe names none. Without a default the recipe must name one,
            unless the field is optional.
        is_optional: whether the value may be None, which is then the default.
        settings: settings of the default kind that differ from its own defaults.
    """
    metadata = {"part": Part(folder, default, settings)}
    if is_optional:
        return field(default=None, metadata=metadata)
    if default is None:
        return field(default=MISSING, metadata=metadata)
    return field(default_factory=lambda: load(folder, default)(**settings), metadata=metadata)


def names(folder: str) -> list[str]:
    """Return the names of the kinds in `folder` (`"objectives"`), plug-ins included."""
    return sorted({name for root in plugins.roots() for name in root.kinds(folder)})


def file_of(folder: str, name: str, where: str = "") -> Path:
    """Return the file of the kind `name`, which the setting or option `where` gives.

    Raises:
        UserError: there is no such kind; the nearest name is suggested.
    """
    return _find(folder, name, where)[1]


def _find(folder: str, name: str, where: str = "") -> tuple[plugins.Root, Path]:
    for root in plugins.roots():
        if (file := root.kinds(folder).get(name)) is not None:
            return root, file
    raise UserError(f"{where or folder}: no kind '{name}'{nearest_kind(folder, name)}")


def docstring(folder: str, name: str) -> str:
    """Return the docstring of a kind's class, else of its file, without importing it.

    Raises:
        UserError: there is no such kind, or it is a plug-in's and its file cannot be parsed.
    """
    file = file_of(folder, name)
    return _docstring(file, file.stat().st_mtime_ns)


@functools.lru_cache(512)
def _docstring(file: Path, changed: int) -> str:
    """Return the docstring of the kind in a file that changed last at this time."""
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".toml":
            return str(tomllib.loads(text).get("description", "")).strip()
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:  # a plug-in's
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise UserError(f"{file}{line}: plug-in: {type(error).__name__}: {error}") from error
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    of_kind = [node for node in classes if node.name.lower() == class_name(file.stem)]
    texts = [*map(ast.get_docstring, of_kind), ast.get_docstring(tree)]
    return next(filter(None, texts), "")


def other_names(folder: str, name: str) -> list[str]:
    """Return what else a kind is called, by the line `Also called: RoPE.` of its docstring."""
    if b"Also called: " not in file_of(folder, name).read_bytes():
        return []  # without parsing it
    line = re.search(r"^Also called: (.+)\.$", docstring(folder, name), re.M)
    return line[1].split(", ") if line else []


def called(folder: str, word: str) -> list[str]:
    """Return the kinds that a word names: by their file, or by what else they are called."""

    def letters(text: str) -> str:
        return "".join(filter(str.isalnum, text.lower()))

    return [
        name
        for name in names(folder)
        if letters(word) in map(letters, (name, *other_names(folder, name)))
    ]


def nearest_kind(folder: str, word: object) -> str:
    """Return "; did you mean 'rotary'?" for a word that names no kind, or the kinds there are."""
    if same := called(folder, str(word)):
        return f"; did you mean '{same[0]}'?"
    others = {o.lower(): name for name in names(folder) for o in other_names(folder, name)}
    return nearest(str(word), names(folder), others)


def folders() -> list[str]:
    """Return the folders of kinds: those where each file has the class of its name."""
    packages = {file.parent for file in ROOT.rglob("__init__.py")}
    named = {folder.relative_to(ROOT).as_posix(): folder for folder in packages}
    return sorted(name for name, folder in named.items() if _holds_kinds(folder))


def _holds_kinds(folder: Path) -> bool:
    files = [file for file in folder.glob("*.py") if not file.stem.startswith("_")]
    return bool(files) and all(
        re.search(rf"(?i)^class {class_name(file.stem)}\b", file.read_text("utf-8"), re.M)
        for file in files
    )


@functools.lru_cache(512)
def class_name(name: str) -> str:
    """Return the class name of a kind in lower case: `span_corruption` -> `spancorruption`.

    A class is spelled as the field spells it (`AdamW`, `ELMo`), so case is ignored. `none` becomes
    `none_`, because `None` is reserved in Python.
    """
    plain = name.rstrip("_")
    return plain.replace("_", "") + ("_" if keyword.iskeyword(plain.capitalize()) else "")


def load(folder: str, name: str) -> Any:
    """Return the class of the kind `name` in `folder`.

    Raises:
        UserError: there is no such kind (the nearest name is suggested), or it is a plug-in's and
            its file holds no kind.
    """
    root, file = _find(folder, name)
    if file.suffix == ".toml":
        return plugins.toml_reader(folder).kind_of(file, root.module_name(file))
    cls = _class_in(root.module(file), class_name(name))
    plugins.require_kind(root, file, cls, name)
    return cls


@functools.lru_cache(512)
def _class_in(module: ModuleType, lower_name: str) -> Any:
    """Return what a module itself defines by this name, in any case; None if nothing."""
    return next(
        (
            value
            for key, value in vars(module).items()
            if key.lower() == lower_name and getattr(value, "__module__", "") == module.__name__
        ),
        None,
    )


def name_of(value: object) -> str:
    """Return the name of the kind of a settings object: the file that defines its class."""
    return type(value).__module__.rsplit(".", 1)[-1]
