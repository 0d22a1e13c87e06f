"""File = kind: the folder is the list of kinds, and only the file asked for is imported.

`objectives/span_corruption.py` holds the one public class `SpanCorruption`, a frozen dataclass
whose fields are its settings. Adding a kind is adding a file; there is no registry.
"""

from __future__ import annotations

import importlib
import keyword
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

from foreword.errors import UserError, nearest

ROOT = Path(__file__).parent


@dataclass(frozen=True)
class Part:
    """What a dataclass field that holds a kind says of it.

    Attributes:
        folder: of the kinds.
        default: the kind if the recipe names none.
        settings: of the default kind, where they differ from its own.
    """

    folder: str
    default: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def part(
    folder: str, default: str | None = None, *, is_optional: bool = False, **settings: Any
) -> Any:
    """Return a dataclass field whose value is a kind of a folder (`"nn/positions"`).

    Args:
        folder: of the kinds.
        default: the kind if the recipe names none. Without a default it must, unless it is
            optional.
        is_optional: whether the value may be None, which is then the default.
        settings: of the default kind, where they differ from the kind's own.
    """
    metadata = {"part": Part(folder, default, settings)}
    if is_optional:
        return field(default=None, metadata=metadata)
    if default is None:
        return field(default=MISSING, metadata=metadata)
    return field(default_factory=lambda: load(folder, default)(**settings), metadata=metadata)


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
        re.search(rf"(?i)^class {class_name(file.stem)}\b", file.read_text("utf-8"), re.M)
        for file in files
    )


def class_name(name: str) -> str:
    """`span_corruption` -> `spancorruption`; `none_` -> `none_`, for `None` is Python's.

    A class is spelled as the field spells it (`AdamW`, `ELMo`), so capitals do not count.
    """
    plain = name.rstrip("_")
    return plain.replace("_", "") + ("_" if keyword.iskeyword(plain.capitalize()) else "")


def load(folder: str, name: str) -> Any:
    """The class of the kind `name` in `folder`.

    Raises:
        UserError: there is no such kind; the nearest name is suggested.
    """
    known = names(folder)
    if name not in known:
        raise UserError(f"{folder} has no kind '{name}'{nearest(name, known)}")
    module = importlib.import_module(f"foreword.{folder.replace('/', '.')}.{name}")
    wanted = class_name(name)
    return next(
        value
        for key, value in vars(module).items()
        if key.lower() == wanted and getattr(value, "__module__", "") == module.__name__
    )


def name_of(value: object) -> str:
    """The kind's name of a settings object: the file its class stands in."""
    return type(value).__module__.rsplit(".", 1)[-1]
