"""File = kind: the folder is the list of kinds, and only the file asked for is imported.

`objectives/span_corruption.py` holds the one public class `SpanCorruption`, a frozen dataclass
whose fields are its settings. Adding a kind is adding a file; there is no registry.
"""

from __future__ import annotations

import importlib
import keyword
import re
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

from foreword.errors import UserError, nearest

ROOT = Path(__file__).parent


@dataclass(frozen=True)
class Part:
    """Says that a setting is a kind of `folder`; `default` is the kind when the recipe has none."""

    folder: str
    default: str | None = None


def part(folder: str, default: str | None = None, *, is_optional: bool = False) -> Any:
    """A dataclass field whose value is a kind of `folder` (`"nn/positions"`), `default` if unsaid.

    Without a default the recipe must name the kind, unless it `is_optional`: then it is None.
    """
    metadata = {"part": Part(folder, default)}
    if is_optional:
        return field(default=None, metadata=metadata)
    if default is None:
        return field(default=MISSING, metadata=metadata)
    return field(default_factory=lambda: load(folder, default)(), metadata=metadata)


def names(folder: str) -> list[str]:
    """The kinds in `folder` (`"objectives"`), by name."""
    files = (ROOT / folder).glob("*.py")
    return sorted(file.stem.rstrip("_") for file in files if not file.stem.startswith("_"))


def folders() -> list[str]:
    """The folders of kinds: those where each file has the class of its name."""
    found = {file.parent for file in ROOT.rglob("__init__.py")}
    named = {folder.relative_to(ROOT).as_posix(): folder for folder in found}
    return sorted(name for name, folder in named.items() if _holds_kinds(folder))


def _holds_kinds(folder: Path) -> bool:
    files = [file for file in folder.glob("*.py") if not file.stem.startswith("_")]
    return bool(files) and all(
        re.search(rf"^class {class_name(file.stem.rstrip('_'))}\b", file.read_text("utf-8"), re.M)
        for file in files
    )


def class_name(name: str) -> str:
    """`span_corruption` -> `SpanCorruption`; `none` -> `None_`, for `None` is Python's."""
    camel = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
    return f"{camel}_" if keyword.iskeyword(camel) else camel


def load(folder: str, name: str) -> Any:
    """The class of the kind `name` in `folder`.

    Raises:
        UserError: there is no such kind; the nearest name is suggested.
    """
    known = names(folder)
    if name not in known:
        raise UserError(f"{folder} has no kind '{name}'{nearest(name, known)}")
    module = importlib.import_module(f"foreword.{folder.replace('/', '.')}.{name}")
    return getattr(module, class_name(name))


def name_of(value: object) -> str:
    """The kind's name of a settings object: the file its class stands in."""
    return type(value).__module__.rsplit(".", 1)[-1]
