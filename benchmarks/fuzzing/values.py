"""Values for settings and options: likely ones by their type, and ones that nobody should give."""

from __future__ import annotations

import dataclasses
import functools
import json
import random
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from foreword.settings import config, kinds

WHOLE = (0, 1, 2, 3, 4, 6, 8, 16, 24, 32, 64)
REAL = (0.0, 0.1, 0.15, 0.25, 0.5, 0.9, 0.99, 1.0, 2.0, 1e-3, 1e-6)
WORDS = ("", "[CLS]", "[SEP]", "</s>", "[PAD]", "text", "body", "none", "auto")
WILD: tuple[Any, ...] = (
    *(-1, 0, 3, 10**6, 10**12, 2**31, 2**63, 10**40, -(10**18)),
    *(0.0, -0.5, 1.5, 1e-320, 1e20, 1e308, -1e308, float("inf"), float("-inf"), float("nan")),
    *("", " ", "nope", "x" * 5_000, "\u0000", "../..", "naïve \U0001f600", "1", "true", "None"),
    *(True, False, [], [[]], [1, 2], ["a", 1], {}, {"kind": "nope"}, {"kind": 3}, {"a": {"b": 1}}),
    json.loads("[" * 200 + "]" * 200),
)
WILD_WORDS = (
    *("", " ", "-", "--", "-1", "0", "1", "3", "1e3", "1e99", "nan", "inf", "-inf", "0.5", "NaN"),
    *("x" * 5_000, "naïve \U0001f600", "\udcff\udcfe", "a=b", "model.layers=2", "a.b", "[MASK]"),
    *(
        "99999999999999999999",
        "nowhere/at/all",
        ".",
        "/",
        "/dev/null",
        "*",
        "~",
        "%s",
        "{}",
        "\n",
        "\t",
    ),
    *("/proc/x", f"{__file__}/x"),
)


@dataclass(frozen=True)
class Setting:
    """A setting in a recipe.

    Attributes:
        path: `("model", "layers")`.
        hint: its type.
        part: where it is a kind, which.
    """

    path: tuple[str, ...]
    hint: Any
    part: kinds.Part | None = None


def settings(cls: type[Any], table: Mapping[str, Any], at: tuple[str, ...] = ()) -> list[Setting]:
    """All settings of a dataclass, and of the kinds that `table` has in it."""
    return list(_walk(cls, table, at))


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _walk(cls: type[Any], table: Mapping[str, Any], at: tuple[str, ...]) -> Iterator[Setting]:
    hints = _hints(typing.cast(Any, cls))
    for f in dataclasses.fields(cls):
        if not f.init:
            continue
        path, value = (*at, f.name), table.get(f.name)
        part: kinds.Part | None = f.metadata.get("part")
        yield Setting(path, hints[f.name], part)
        if part is not None and isinstance(value, Mapping) and "kind" in value:
            yield from _walk(kinds.load(part.folder, value["kind"]), value, path)
        elif dataclasses.is_dataclass(hints[f.name]) and isinstance(value, Mapping):
            yield from _walk(typing.cast(type, hints[f.name]), value, path)


def likely(setting: Setting, rng: random.Random) -> Any:
    """A value of the right type, small."""
    if setting.part is not None:
        return {"kind": rng.choice(kinds.names(setting.part.folder))}
    return _of_type(setting.hint, rng)


def _of_type(hint: Any, rng: random.Random) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _of_type(rng.choice([a for a in args if a is not type(None)]), rng)
    if origin is Literal:
        return rng.choice(args)
    if origin in (tuple, list):
        return [_of_type(args[0], rng) for _ in range(rng.randint(1, 3))]
    if dataclasses.is_dataclass(hint):
        return {}
    by_type: dict[Any, tuple[Any, ...]] = {int: WHOLE, float: REAL, bool: (True, False), str: WORDS}
    return rng.choice(by_type.get(hint, WORDS))


def put(table: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """`table` with a value laid on it."""
    for name in reversed(path):
        value = {name: value}
    return config.merge(table, value)


def drop(table: dict[str, Any], path: tuple[str, ...]) -> None:
    """Takes a value out of a table, where it is there."""
    inner: Any = table
    for name in path[:-1]:
        inner = inner.get(name) if isinstance(inner, dict) else None
    if isinstance(inner, dict):
        inner.pop(path[-1], None)
