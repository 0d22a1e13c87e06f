"""What callers pass in more than one form: paths, settings, budgets, texts."""

from __future__ import annotations

import functools
import inspect
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar, get_type_hints

from foreword import atomic, config, stored
from foreword.data.text_files import ReadSettings
from foreword.data.write_shards import PrepareSettings
from foreword.errors import UserError
from foreword.ranges import check
from foreword.runs.recipe import Recipe, load_recipe
from foreword.trackers._contract import Tracker
from foreword.train.budget import Budget

DATA = "--data"
LONGEST_NAME = 255  # bytes of a file's name

PathName = str | PathLike[str]
Paths = PathName | Sequence[PathName]
Track = str | Tracker | Sequence[str | Tracker]
Settings = Mapping[str, Any] | Sequence[str]
P = ParamSpec("P")
R = TypeVar("R")


def in_ranges(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that first checks its arguments, as the command line checks options.

    A number's range comes with its type: `rows: Count`.
    """
    signature = inspect.signature(function)
    hints = functools.cache(partial(get_type_hints, function, include_extras=True))

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            check(hints()[name], value, f"--{name.strip('_').replace('_', '-')}")
        return function(*args, **kwargs)

    return called


def paths(given: Paths | None, name: str = DATA) -> tuple[str, ...]:
    """Return one path or several as texts; none for None.

    Raises:
        UserError: one is empty; `name` names the argument.
    """
    if given is None:
        return ()
    several = [given] if isinstance(given, str | PathLike) else given
    return tuple(_not_empty(one, name) for one in several)


def path(given: PathName, name: str) -> Path:
    """Return a path.

    Raises:
        UserError: it is empty; `name` names the argument.
    """
    return Path(_not_empty(given, name))


def _not_empty(given: PathName, name: str) -> str:
    if not isinstance(given, str | PathLike):
        raise UserError(f"{name}: expected a path, got {reprlib.repr(given)}")
    text = fspath(given)
    if not isinstance(text, str):
        raise UserError(f"{name}: expected a path in text, got {text!r}")
    if not text:
        raise UserError(f"{name}: the path is empty; '.' is the current folder")
    names = os.fsencode(text).split(b"/")
    if "\0" in text or max(map(len, names)) > LONGEST_NAME:
        hint = f"; {name} takes paths, texts takes the texts themselves" if name == DATA else ""
        raise UserError(f"{name}: {reprlib.repr(text)} is not a path{hint}")
    return text


def assignments(given: Settings) -> list[str]:
    """Return settings as `--set` takes them: `{"model.layers": 6}` as `["model.layers=6"]`."""
    if isinstance(given, str):
        raise UserError(f'settings: expected a table, such as {{"model.layers": 6}}, got {given!r}')
    if isinstance(given, Mapping):
        return [f"{name}={config.to_toml(value)}" for name, value in given.items()]
    return list(given)


def read_recipe(recipe: str | Path | Recipe, settings: Sequence[str]) -> Recipe:
    """Return a recipe given by name, by file or as an object, with settings applied.

    Raises:
        UserError: there is no such recipe, or a mistake in it.
    """
    if not isinstance(recipe, Recipe):
        return load_recipe(recipe, settings)
    return config.build(Recipe, config.assign(config.to_table(recipe), settings))


def budget_of(**amounts: float | None) -> Budget | None:
    """Return the one budget that is given, of hours, tokens, epochs, steps and flops; or None.

    Raises:
        UserError: more than one is given, or its amount is impossible.
    """
    given = {unit: amount for unit, amount in amounts.items() if amount is not None}
    if len(given) > 1:
        flags = ", ".join(f"--{unit}" for unit in given)
        raise UserError(f"give one budget, not {len(given)}: {flags}")
    for unit, amount in given.items():
        return config.build(Budget, {"unit": unit, "amount": amount})
    return None


def given_reading(**settings: str | None) -> dict[str, Any]:
    """Return the settings of reading text that are given, as a recipe has them."""
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if given.get("documents", "line") != "line":
        given["blank_lines"] = False  # there are none to count
    return given


def refuse(given: Mapping[str, Any], why: str) -> NoReturn:
    """Refuse settings of reading where no text is read.

    Raises:
        UserError: always; it names the first.
    """
    raise UserError(f"--{next(iter(given))}: {why}")


def read_as(settings: ReadSettings, given: Mapping[str, Any]) -> ReadSettings:
    """Return `settings` with those given.

    Raises:
        UserError: a value is not a choice.
    """
    try:
        return replace(settings, **given)
    except ValueError as error:
        raise UserError(f"--{error}") from None


def heldout(given: Paths | float | None) -> tuple[str, ...]:
    """Return a share, or one path or several, as texts."""
    return (str(given),) if isinstance(given, int | float) else paths(given, "--heldout")


def hold_out(
    settings: PrepareSettings, given: Sequence[str]
) -> tuple[PrepareSettings, tuple[str, ...]]:
    """Return the settings with the share of documents given, and the texts given.

    Raises:
        UserError: both were given, or several shares, or an impossible one.
    """
    if not any(map(is_share, given)):
        return settings, tuple(given)
    if len(given) > 1:
        raise UserError(f"--heldout: expected one share, or texts; got {' and '.join(given)}")
    try:
        return replace(settings, heldout=float(given[0])), ()
    except ValueError as error:
        raise UserError(f"--{error}") from None


def is_share(value: str) -> bool:
    """Return whether a value of `heldout` is a number, not a path."""
    try:
        float(value)
    except ValueError:
        return False
    return True


def write_texts(texts: Iterable[str], path: Path) -> str:
    """Write texts as JSON lines, from which runs read them, and return the path.

    Args:
        texts: read once, never held together.
        path: the file.

    Raises:
        UserError: an item is not a string, or there is none.
    """
    if isinstance(texts, str):
        raise UserError("texts: expected an iterable of strings, got a string; data= takes paths")
    with atomic.writing(path) as lines:
        number = -1
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise UserError(f"texts[{number}]: expected a string, got {type(text).__name__}")
            lines.write(stored.to_json({"text": text}) + "\n")
        if number < 0:
            raise UserError("texts is empty")
    return str(path)
