"""Recipes: TOML to frozen dataclasses and back, `extends`, `--set a.b=c`, and errors that help.

Reading is strict. An error names the key, the value and the nearest right word:
`objective.raet: kind 'masked' has no such setting; did you mean 'rate'?`
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import functools
import json
import math
import numbers
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from foreword.disk import atomic, stored
from foreword.disk.credentials import masked_values
from foreword.errors import UserError, item_name, nearest
from foreword.settings import kinds
from foreword.settings.ranges import Curve, curves_in, is_curve

Table = dict[str, Any]
Settings = TypeVar("Settings")

# Of a dataclass of settings, as its `RENAMED`: by the old name of a setting its name of today, or a
# function from the old value to the name and value of today; a name "[[...]]" is a table of the
# recipe. Of a kind, as its `BEFORE`: the values that tables stored before a setting existed stand
# for.
Renamed = Mapping[str, str | Callable[[Any], tuple[str, Any]]]

FEW_CHOICES = 6  # a message names all of them
INDEX = re.compile(r"\[\d{1,9}\]")


@dataclasses.dataclass(frozen=True)
class Shipped:
    """The TOML files of one sort that come with Foreword.

    Attributes:
        folder: where they lie.
        what: what messages call one of them.
    """

    folder: Path
    what: str

    def names(self) -> list[str]:
        """Return the names of the files, without `.toml`."""
        return list(_stems(self.folder, self.folder.stat().st_mtime_ns))

    def find(self, name: str) -> Path:
        """Return a file of this sort, given by its path or by the name of a shipped one.

        Raises:
            UserError: there is no such file and no such name.
        """
        names = self.names()
        if name.endswith(".toml"):
            if Path(name).is_file():
                return Path(name)
            close = difflib.get_close_matches(Path(name).stem, names, n=1)
            hint = f"; a shipped {self.what} is called '{close[0]}'" if close else ""
            raise UserError(f"there is no file {name}{hint}")
        if name in names:
            return self.folder / f"{name}.toml"
        raise UserError(
            f"no {self.what} '{name}', neither a .toml file nor shipped{nearest(name, names)}"
        )


@functools.lru_cache(16)
def _stems(folder: Path, changed: int) -> tuple[str, ...]:
    """Return the names of the TOML files in a folder that changed last at this time.

    Those that begin with `_` are for others to extend.
    """
    files = (file for file in folder.glob("*.toml") if not file.stem.startswith("_"))
    return tuple(sorted(file.stem for file in files))


FOLDER = Path(__file__).parents[1] / "recipes"
RECIPES = Shipped(FOLDER, "recipe")
GRIDS = Shipped(FOLDER / "grids", "grid")
SUITES = Shipped(FOLDER / "suites", "suite")
CLAIMS = Shipped(FOLDER / "claims", "claim")
LABS = Shipped(FOLDER / "labs", "lab")
CLEANING = Shipped(FOLDER / "cleaning", "recipe of cleaning")


def load(
    cls: type[Settings],
    path: Path,
    *over: Mapping[str, Any],
    is_stored: bool = False,
    what: str = "",
) -> Settings:
    """Build the frozen dataclass `cls` from a TOML file, overridden by the tables `over`.

    Args:
        cls: the dataclass.
        path: the file.
        over: tables of settings.
        is_stored: whether Foreword wrote the file, maybe an earlier one (`in_todays_names`).
        what: what messages call the file.

    Raises:
        UserError: the file cannot be read, or a setting is wrong; the message names its key and
            the file that sets it.
    """
    layers = _layers(path)
    try:
        table = functools.reduce(merge, over, _merge_layers(layers))
        return build(cls, in_todays_names(cls, table) if is_stored else table, owner=what)
    except UserError as error:
        key = str(error).partition(":")[0]
        # Name the file that sets it, if it is one of the user's.
        users = [layer for layer in layers if not layer[0].is_relative_to(FOLDER)]
        if not users or any(_has_setting(table, key) for table in over):
            raise
        files = [file for file, table in users if _has_setting(table, key)] or [users[0][0]]
        raise UserError(f"{files[0]}: {error}") from error


def read(path: Path, find: Callable[[str], Path] = RECIPES.find) -> Table:
    """Return the table of a TOML recipe, merged over the recipe that it `extends`.

    `extends` names a file next to this one, or a shipped recipe.

    Args:
        path: the recipe.
        find: returns the file of a shipped recipe of the same sort, by its name.

    Raises:
        UserError: the file is missing, is not TOML, or extends itself.
    """
    return _merge_layers(_layers(path, find))


def _layers(
    path: Path, find: Callable[[str], Path] = RECIPES.find, seen: tuple[Path, ...] = ()
) -> list[tuple[Path, Table]]:
    """Return a file and those that it extends, in order, each with its own table."""
    if path.resolve() in seen:
        raise UserError(f"{path}: extends itself")
    table = read_toml(path)
    parent = table.pop("extends", None)
    if parent is None:
        return [(path, table)]
    if not isinstance(parent, str):
        raise UserError(f"{path}: extends: expected the name of a recipe, got {parent!r}")
    sibling = path.parent / parent
    below = sibling if sibling.is_file() else find(parent)
    return [(path, table), *_layers(below, find, (*seen, path.resolve()))]


def read_toml(path: Path) -> Table:
    """Return the table of a TOML file.

    Raises:
        UserError: it cannot be read, is not TOML, or nested too deeply.
    """
    atomic.require_no_device(path, atomic.FROM_A_FILE)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        where = f"byte {error.start:,} (0x{error.object[error.start]:02x}) is not UTF-8"
        raise UserError(f"{path}: cannot be read: {where}; save it as UTF-8") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except RecursionError:
        raise UserError(f"{path}: nested too deeply") from None
    except ValueError as error:  # or a number of thousands of digits
        raise UserError(f"{path}: not valid TOML: {error}") from error
    if stored.is_too_deep(table):
        raise UserError(f"{path}: nested too deeply")
    return table


def _merge_layers(layers: Sequence[tuple[Path, Table]]) -> Table:
    """Merge the tables of files; earlier files override later ones."""
    return functools.reduce(merge, (table for _, table in reversed(layers)))


def _has_setting(table: Any, key: str) -> bool:
    """Return whether a table has the setting `a.b[0].c`; a bare kind has all its settings."""
    for name in key.split("."):
        if not isinstance(table, Mapping):
            return True
        if (name := name.partition("[")[0]) not in table:
            return False
        table = table[name]
    return True


def merge(base: Mapping[str, Any], over: Mapping[str, Any], where: str = "") -> Table:
    """Merge `over` into `base`, table by table; a table of another `kind` replaces the old one.

    Args:
        base: the table below.
        over: the table above.
        where: their place in the recipe, for messages.
    """
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        path = f"{where}.{key}".lstrip(".").replace(".[", "[")
        if isinstance(below, str) and isinstance(value, dict):
            below = {"kind": below}  # `position = "rotary"`, and now one of its settings
        is_same = isinstance(below, dict) and isinstance(value, dict)
        if isinstance(below, list) and _is_indexed(value):
            merged[key] = _merge_items(below, value, path)
        elif is_same and value.get("kind", below.get("kind")) == below.get("kind"):  # type: ignore[union-attr]
            merged[key] = merge(typing.cast(Table, below), value, path)
        else:
            merged[key] = value
    return merged


def _is_indexed(value: Any) -> bool:
    """Return whether a table sets items of a list by their numbers, `{"[0]": ...}`."""
    return isinstance(value, Mapping) and bool(value) and all(INDEX.fullmatch(key) for key in value)


def _merge_items(below: Sequence[Any], over: Mapping[str, Any], where: str) -> list[Any]:
    """Merge the table of each number in `over`, `{"[0]": ...}`, into that item of a list."""
    items = list(below)
    for key, value in over.items():
        number = int(key[1:-1])
        if number >= len(items):
            raise UserError(f"{where}[{number}]: there are {len(items)}, counted from 0")
        items[number] = merge({key: items[number]}, {key: value}, where)[key]
    return items


def assign(table: Mapping[str, Any], assignments: Iterable[str]) -> Table:
    """Return `table` overridden by each `a.b=value`; values are TOML, bare words are strings.

    An item of a list is named by its number: `objective.terms[0].rate=0.3`.

    A kind replaces the settings of another, so kinds and whole tables are assigned first: the order
    of `model.layers=2` and `model.kind=rnn` does not matter.

    Raises:
        UserError: an assignment has no `=` or no key.
    """

    def depth(assignment: str) -> int:
        return assignment.partition("=")[0].strip().removesuffix(".kind").count(".")

    result = dict(table)
    for assignment in sorted(assignments, key=depth):
        key, equals, text = assignment.partition("=")
        names = re.sub(r"(?<=.)\[", ".[", key.strip()).split(".")
        if not equals or not all(names):
            raise UserError(f"--set {assignment}: expected key.name=value")
        if any(name.startswith("[") and not INDEX.fullmatch(name) for name in names):
            raise UserError(
                f"--set {assignment}: items are numbered from 0, as in key[0].name=value"
            )
        if len(names) > stored.DEEPEST:
            raise UserError(f"--set {key:.40}...: nested too deeply")
        try:
            value = tomllib.loads(f"value = {text.strip()}")["value"]
        except (ValueError, RecursionError):  # not TOML, or a number of thousands of digits
            value = text.strip()
        for name in reversed(names):
            value = {name: value}
        result = merge(result, value)
    return result


def build(
    cls: type[Settings], table: Mapping[str, Any], where: str = "", owner: str = ""
) -> Settings:
    """Build the frozen dataclass `cls` from a table.

    Args:
        cls: the dataclass.
        table: its settings.
        where: their place in the recipe, for messages.
        owner: what messages call that which has the settings, or "".

    Raises:
        UserError: an unknown setting, a wrong type, a missing setting, or impossible values.
    """
    # Convert each value to its field's type.
    known = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    hints = _hints_of(cls)  # type: ignore[arg-type]
    values: Table = {}
    for key, value in table.items():
        path = f"{where}.{key}" if where else key
        if key not in known:
            if (today := _renamed(cls, key, value)) is not None:
                new, now = path.removesuffix(key) * (today[0][0] != "[") + today[0], today[1]
                new += "" if now is value else f" = {to_toml(now)}"
                raise UserError(f"{path}: is now {new}")
            hint = _below(cls, table, key, where) or nearest(key, known)
            raise UserError(f"{path}: {owner and f'{owner} has '}no such setting{hint}")
        part = known[key].metadata.get("part")
        if part is not None and value is not None:
            is_list = _is_list(hints[key])
            if is_list and _is_indexed(value):
                value = _merge_items(_default_items(known[key]), value, path)
            values[key] = build_kind(part, value, path, is_list=is_list)
        else:
            values[key] = convert(hints[key], value, path)
    # All required fields must be there, and their values possible together.
    for key, f in known.items():
        is_required = f.default is f.default_factory is dataclasses.MISSING
        if key not in values and is_required:
            path = f"{where}.{key}" if where else key
            needed = f"{owner} needs this setting" if owner else "is needed"
            raise UserError(f"{path}: {needed}")
    try:
        settings = cls(**values)
    except ValueError as error:  # a dataclass's __post_init__ refuses impossible values
        raise UserError(f"{where}.{error}" if where else str(error)) from error
    if not where:
        _require_curves(settings)
    return settings


def _require_curves(settings: Any) -> None:
    """Check that only settings that may change while a model trains do (`CHANGING`)."""
    changing: re.Pattern[str] = getattr(settings, "CHANGING", re.compile("(?!)"))
    for path in curves_in(settings):
        if not changing.fullmatch(path):
            raise UserError(f"{path}: must be one number, and cannot change during training")


@functools.cache
def _hints_of(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _default_items(setting: dataclasses.Field[Any]) -> list[Any]:
    """Return the default of a setting that is a list of kinds, as tables."""
    return _kind_table(setting.default, to_table) if isinstance(setting.default, tuple) else []


def in_todays_names(cls: type, table: Mapping[str, Any]) -> Table:
    """Return settings that an earlier Foreword stored, under the names that they have today.

    Only what Foreword wrote itself is read so; in what a person writes an old name is refused, and
    the message has the new one. Settings of kinds have the names that they had; those that were
    added since have the values that a kind's `BEFORE` names.
    """
    hints, updated = _hints_of(cls), {}
    parts = {f.name: f.metadata["part"] for f in dataclasses.fields(cls) if "part" in f.metadata}
    for key, value in table.items():
        name, value = _renamed(cls, key, value) or (key, value)
        hint = hints.get(name)
        nested = next(filter(dataclasses.is_dataclass, (hint, *get_args(hint))), None)
        is_nested = nested is not None and isinstance(value, Mapping)
        if is_nested and name in parts:
            updated[name] = as_stored(parts[name], value)
        else:
            updated[name] = (
                in_todays_names(typing.cast(type, nested), value) if is_nested else value
            )
    update: Callable[[Table], Table] = getattr(cls, "in_todays_form", lambda table: table)
    return update(updated)


def as_stored(part: kinds.Part, table: Mapping[str, Any]) -> Table:
    """Return the table of a kind that an earlier Foreword stored, with settings added since."""
    name = table.get("kind", part.default)
    if name not in kinds.names(part.folder):
        return dict(table)
    return {**getattr(kinds.load(part.folder, name), "BEFORE", {}), **table}


def _renamed(cls: type, key: str, value: Any) -> tuple[str, Any] | None:
    """Return today's name and value of a setting that `cls` once had under another name."""
    renamed: Renamed = getattr(cls, "RENAMED", {})
    today = renamed.get(key)
    if today is None:
        return None
    return (today, value) if isinstance(today, str) else today(value)


def _below(cls: type, table: Mapping[str, Any], key: str, where: str) -> str:
    """Return where a setting unknown to `cls` stands among its kinds' own, as a hint, or ""."""
    for f in dataclasses.fields(cls):
        if "part" not in f.metadata:
            continue
        part: kinds.Part = f.metadata["part"]
        value = table.get(f.name, _default_items(f) or part.default)
        items = value if isinstance(value, list) else [value]
        for number, item in enumerate(items):
            name = item.get("kind", part.default) if isinstance(item, Mapping) else item
            if name not in kinds.names(part.folder):
                continue
            if any(key == f.name for f in dataclasses.fields(kinds.load(part.folder, name))):
                path = f"{where}.{f.name}" if where else f.name
                path_of_kind = f"{path}[{number}]" if isinstance(value, list) else path
                return f"; {path_of_kind}, which is {name}, has it: {path_of_kind}.{key}"
    return ""


def _is_list(hint: Any) -> bool:
    """Return whether the type of a setting is a list of kinds."""
    return get_origin(hint) is tuple


def build_kind(part: kinds.Part, value: Any, where: str, *, is_list: bool = False) -> Any:
    """Build a kind from its table, `{kind = "masked", rate = 0.15}`, or from its bare name.

    With `is_list`, build a tuple of kinds from a list of these.
    """
    if is_list != isinstance(value, list):
        expected = "a list of kinds" if is_list else "a kind"
        raise UserError(f"{where}: expected {expected}, got {value!r}")
    if isinstance(value, list):
        return tuple(build_kind(part, item, f"{where}[{n}]") for n, item in enumerate(value))
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: expected a table with a kind, got {value!r}")
    settings = dict(value)
    name = settings.pop("kind", part.default)
    if name is None:
        raise UserError(f"{where}.kind: required; one of: {', '.join(kinds.names(part.folder))}")
    kinds.file_of(part.folder, str(name), f"{where}.kind")
    cls = kinds.load(part.folder, name)
    if name == part.default and part.settings:
        settings = merge(to_table(cls(**part.settings)), settings)
    return build(cls, settings, where, f"kind '{name}'")


def convert(hint: Any, value: Any, where: str) -> Any:
    """Convert `value` to the type `hint`, without guessing.

    Raises:
        UserError: it is not such a value; `where` names it.
    """
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(args, value, where)
    if origin is Literal:
        if value in args:
            return value
        if args == (None,):
            raise UserError(f"{where}: is not supported; leave it out")
        words = [str(arg) for arg in args]
        hint = f"; choose from: {', '.join(words)}"
        if len(words) > FEW_CHOICES:
            hint = nearest(str(value), words)
        raise UserError(f"{where}: {value!r} is not a choice{hint}")
    if origin in (tuple, list):
        if not isinstance(value, list | tuple):
            raise UserError(f"{where}: expected a list, got {value!r}")
        if origin is tuple and args and args[-1] is not Ellipsis and len(args) != len(value):
            raise UserError(f"{where}: expected {len(args)} values, got {value!r}")
        inner = args[0] if args else Any
        return tuple(convert(inner, item, item_name(where, n)) for n, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise UserError(f"{where}: expected a table, got {value!r}")
        return value
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise UserError(f"{where}: expected a table, got {value!r}")
        return build(typing.cast(type, hint), value, where)
    return _convert_scalar(hint, value, where)


def _convert_union(args: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in args:
        return None
    choices = [arg for arg in args if arg is not type(None)]
    failures: list[str] = []  # an error would hold its callers' frames, and all that these hold
    for choice in choices:
        try:
            return convert(choice, value, where)
        except UserError as error:
            failures.append(str(error))
    # The choice that came furthest, as to `sizes[10]`, is what was meant; else the first.
    places = [failure.partition(": ")[0] for failure in failures]
    raise UserError(failures[max(range(len(choices)), key=lambda n: (len(places[n]), places[n]))])


def _convert_scalar(hint: Any, value: Any, where: str) -> Any:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
    if hint is float and is_curve(value):
        return Curve(*(convert(float, value[end], f"{where}.{end}") for end in ("from", "to")))
    value = _python_number(value)
    if hint is str and isinstance(value, datetime.date | datetime.time):
        return str(value)  # TOML takes 02:00:00 for a time of day, and 24:00:00 for no such thing
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) < 2**1023 else math.inf
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e9 is how people write a large whole number
    is_right = isinstance(value, hint) and not (isinstance(value, bool) and hint is not bool)
    if not is_right:
        raise UserError(f"{where}: expected {words.get(hint, hint.__name__)}, got {value!r}")
    return value


def _python_number(value: Any) -> Any:
    """Return a number of numpy as Python's; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def to_table(settings: Any, *, with_defaults: bool = True) -> Table:
    """Return a settings dataclass as a table, from which `build` makes an equal value.

    Args:
        settings: the dataclass.
        with_defaults: whether settings that have their default are told; a table without them
            stays as it is when settings are added.
    """

    def table_of(value: Any) -> Any:
        is_settings = dataclasses.is_dataclass(value)
        return to_table(value, with_defaults=with_defaults) if is_settings else _plain(value)

    table: Table = {}
    for f in dataclasses.fields(settings):
        if not f.init:
            continue
        value = getattr(settings, f.name)
        if value is None or not (with_defaults or value != _default_of(f)):
            continue
        if "part" in f.metadata:
            value = _kind_table(value, table_of)
        elif isinstance(value, tuple):
            value = [table_of(v) for v in value]
        else:
            value = table_of(value)
        table[f.name] = value
    return table


def kind_table(settings: Any) -> Table:
    """Return a kind's settings as a table that names it, as `build_kind` takes it."""
    return {"kind": kinds.name_of(settings), **to_table(settings)}


def _default_of(f: dataclasses.Field[Any]) -> Any:
    return f.default if f.default_factory is dataclasses.MISSING else f.default_factory()


def _plain(value: Any) -> Any:
    return value.table() if isinstance(value, Curve) else value


def _kind_table(value: Any, table_of: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple):
        return [_kind_table(item, table_of) for item in value]
    return {"kind": kinds.name_of(value), **table_of(value)}


def dumps(table: Mapping[str, Any], prefix: str = "") -> str:
    """Return a table as TOML text, without credentials."""
    below = {key: v for key, v in table.items() if isinstance(v, Mapping) and not is_curve(v)}
    values = {key: masked_values(v) for key, v in table.items() if key not in below}
    text = "".join(f"{key} = {to_toml(value)}\n" for key, value in values.items())
    for key, value in below.items():
        text += f"\n[{prefix}{key}]\n" + dumps(value, f"{prefix}{key}.")
    return text


def _key(name: str) -> str:
    """Return a key of a table as TOML writes it."""
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else json.dumps(name)


def to_toml(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {to_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    return repr(_python_number(value))
