"""What callers pass in more than one form: paths, settings, budgets, texts."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import (
    Any,
    ParamSpec,
    TypeVar,
)

from foreword.data.text_files import ReadSettings
from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.settings import config
from foreword.tables.given import items_of, texts_of
from foreword.trackers._contract import Tracker
from foreword.train.budget import Budget

DATA = "--data"
DATA_OR_TEXTS = "give data, which takes paths, or texts, which takes the texts themselves"
LONGEST_NAME = 255  # bytes of a file's name

PathName = str | PathLike[str]
Paths = PathName | Sequence[PathName]
Track = str | Tracker | Sequence[str | Tracker]
Settings = Mapping[str, Any] | Sequence[str]
P = ParamSpec("P")
R = TypeVar("R")


def paths(value: Paths | None, name: str = DATA) -> tuple[str, ...]:
    """Return one path or several as texts; none for None.

    Raises:
        UserError: one is empty, or is not a path; `name` names the argument.
    """
    if value is None:
        return ()
    items = [value] if isinstance(value, str | PathLike) else items_of(value, name, "paths")
    return tuple(_not_empty(item, name) for item in items)


def path(value: PathName, name: str) -> Path:
    """Return a path.

    Raises:
        UserError: it is empty, or is not a path; `name` names the argument.
    """
    return Path(_not_empty(value, name))


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """Return the name of each folder; its path if another one has that name."""
    names = [folder.absolute().name for folder in folders]
    return [
        name if names.count(name) == 1 else str(folder)
        for name, folder in zip(names, folders, strict=True)
    ]


def _not_empty(value: PathName, name: str) -> str:
    if not isinstance(value, str | PathLike):
        raise UserError(f"{name}: expected a path, got {reprlib.repr(value)}")
    text = fspath(value)
    if not isinstance(text, str):
        raise UserError(f"{name}: expected a path in text, got {text!r}")
    if not text:
        raise UserError(f"{name}: the path is empty; '.' is the current folder")
    names = os.fsencode(text).split(b"/")
    hint = f"; {name} takes paths, texts takes the texts themselves" if name == DATA else ""
    if "\0" in text or max(map(len, names)) > LONGEST_NAME:
        raise UserError(f"{name}: {reprlib.repr(text)} is not a path{hint}")
    if hint and len(text.split()) > 1 and not _may_exist(text):
        raise UserError(f"{name}: {reprlib.repr(text)}: there is no such file or folder{hint}")
    return text


def _may_exist(text: str) -> bool:
    """Return whether a path exists, or may be a pattern that matches some that do."""
    return any(sign in text for sign in "*?[") or os.path.lexists(Path(text).expanduser())


def assignments(settings: Settings) -> list[str]:
    """Return settings as `--set` takes them: `{"model.layers": 6}` as `["model.layers=6"]`.

    Raises:
        UserError: they are neither a table nor such texts, or a setting is None.
    """
    if isinstance(settings, Mapping):
        if nones := [name for name, value in settings.items() if value is None]:
            raise UserError(f"settings: {nones[0]} is None; leave it out for its default")
        return [f"{name}={config.to_toml(value)}" for name, value in settings.items()]
    is_list = isinstance(settings, Sequence) and not isinstance(settings, str)
    if not is_list or not all(isinstance(item, str) for item in settings):
        raise UserError(
            f'settings: expected a table, such as {{"model.layers": 6}}, got {settings!r}'
        )
    return list(settings)


def budget_of(**amounts: float | None) -> Budget | None:
    """Return the budget in hours, tokens, epochs, steps or flops; None if there is none.

    Raises:
        UserError: more than one is given, or its amount is impossible.
    """
    budgets = {unit: amount for unit, amount in amounts.items() if amount is not None}
    if len(budgets) > 1:
        flags = ", ".join(f"--{unit}" for unit in budgets)
        raise UserError(f"give one budget, not {len(budgets)}: {flags}")
    for unit, amount in budgets.items():
        try:
            return config.build(Budget, {"unit": unit, "amount": amount})
        except UserError as error:
            raise UserError(str(error).replace("amount", f"--{unit}", 1)) from None
    return None


def given_reading(**settings: str | None) -> dict[str, Any]:
    """Return the settings of reading text that are not None, as a recipe has them."""
    reading: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if reading.get("documents", "line") != "line":
        reading["blank_lines"] = False  # there are none to count
    return reading


def read_as(settings: ReadSettings, reading: Mapping[str, Any]) -> ReadSettings:
    """Return `settings` with those in `reading` replaced.

    Raises:
        UserError: a value is not a choice.
    """
    try:
        return replace(settings, **reading)
    except ValueError as error:
        raise UserError(f"--{error}") from None


def texts_file(out: Path) -> Path:
    """Return the file in which texts given in Python are kept."""
    return out.with_name(f"{out.name}.jsonl")


@contextmanager
def kept(texts: Iterable[str] | None, out: Path) -> Iterator[None]:
    """Keep texts given in Python beside what is made of them, as JSON lines, to read them again.

    Args:
        texts: read once, never held together; None if others are read.
        out: the folder to be made of them; if it is not, the file is removed.

    Raises:
        UserError: an item is not a text, there is none, or the file exists or is being written.
    """
    if texts is None:
        yield
        return
    if isinstance(texts, str):
        raise UserError("texts: expected a list of texts, got one text; data= takes paths")
    checked, are_none = texts_of(texts, "texts"), True
    with atomic.writing(texts_file(out), is_new=True) as lines:
        for text in checked:
            lines.write(stored.to_json({"text": text}) + "\n")
            are_none = False
        if are_none:
            raise UserError("texts is empty")
    try:
        yield
    finally:
        if not out.exists():
            texts_file(out).unlink()
