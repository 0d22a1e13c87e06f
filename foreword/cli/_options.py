"""Groups of options: a dataclass whose fields are separate options on the command line.

@dataclass(frozen=True)
class Reading(Options):
    field: Annotated[str | None, typer.Option(help="Field of the text.")] = None

def score(run: Run, reading: Reading) -> None: ...      foreword score RUN --field body

A number's range comes with its type, as in settings: `Annotated[Share, typer.Option(...)]`. So does
that a text is a path: `Path`, or `PathText` where a pattern or a name may be given too.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache, reduce, wraps
from inspect import Parameter
from operator import or_
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

from foreword.errors import UserError
from foreword.settings.ranges import check

IS_PATH = "a path"
PathText = Annotated[str, IS_PATH]


@dataclass(frozen=True)
class Options:
    """A group of options, which a verb takes as one parameter."""

    def refuse(self, why: str) -> None:
        """Check that every option with a default still has it.

        Raises:
            UserError: one has not; the message ends with the reason, `why`.
        """
        for parameter in _fields(type(self)):
            value = getattr(self, parameter.name)
            if parameter.default is Parameter.empty:
                continue
            if value != parameter.default and not (value is None and not parameter.default):
                raise UserError(f"{_flag(parameter)}: {why}")


@lru_cache(64)  # for programs that run many commands
def flat(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Return `verb` with each group of options replaced by its fields, numbers and paths checked.

    Typer sees the types without their ranges, since it would check them with messages of its own,
    and paths as texts, since it would take an empty one for the current folder.
    """
    hints = get_type_hints(verb, include_extras=True)
    groups = {
        name: hint
        for name, hint in hints.items()
        if isinstance(hint, type) and issubclass(hint, Options)
    }
    options = options_of(verb)
    plain: dict[str, Any] = get_type_hints(verb)
    for group in groups.values():
        plain |= get_type_hints(group)

    @wraps(verb)
    def called(**values: Any) -> Any:
        for name, value in values.items():
            annotation, flag = options[name].annotation, _flag(options[name])
            check(annotation, value, flag)
            values[name] = _with_paths(annotation, value, flag)
        for name, group in groups.items():
            values[name] = group(**{f.name: values.pop(f.name) for f in fields(group)})
        return verb(**values)

    parameters = [
        option.replace(annotation=_as_typer_sees(option.annotation, plain[name]))
        for name, option in options.items()
    ]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    called.__annotations__["return"] = hints.get("return")
    return called


@contextmanager
def naming(**options: str) -> Iterator[None]:
    """Name a setting as the command line does in the messages of user errors.

    Args:
        options: the option of each setting of a tokenizer: `vocab="--vocab"`.
    """
    try:
        yield
    except UserError as error:
        text = str(error)
        for name, option in options.items():
            text = text.replace(f"tokenizer.{name}=", f"{option} ")
            text = text.replace(f"tokenizer.{name}", option)
        raise UserError(text) from error


def options_of(verb: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the arguments and options of a verb by name, with the ranges of their types."""
    hints = get_type_hints(verb, include_extras=True)
    parameters: list[Parameter] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        if isinstance(hints[name], type) and issubclass(hints[name], Options):
            parameters += _fields(hints[name])
        else:
            parameters.append(_parameter(name, hints[name], parameter.default))
    return {parameter.name: parameter for parameter in parameters}


def _fields(group: type[Options]) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    empty = Parameter.empty
    return [
        _parameter(f.name, hints[f.name], empty if f.default is MISSING else f.default)
        for f in fields(group)
    ]


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _as_typer_sees(hint: Any, plain: Any) -> Any:
    """Return the plain type, of texts for paths, with what `hint` says of an option's display."""
    notes = [copy.copy(n) for n in _notes(hint) if isinstance(n, ParameterInfo)]
    if Path in _leaves(hint):
        plain = _with_texts(plain)
        for note in notes:
            if isinstance(note, OptionInfo) and note.metavar is None:
                note.metavar = "PATH"
    return Annotated[plain, *notes] if notes else plain


def _with_texts(plain: Any) -> Any:
    """Return a type with `str` for `Path`."""
    if get_origin(plain) is list:
        return list[_with_texts(get_args(plain)[0])]  # type: ignore[misc]
    if get_origin(plain) in (Union, UnionType):
        return reduce(or_, map(_with_texts, get_args(plain)))
    return str if plain is Path else plain


def _with_paths(hint: Any, value: Any, flag: str) -> Any:
    """Return a value with paths for texts where its type says so.

    Raises:
        UserError: a path is empty.
    """
    leaves = list(_leaves(hint))
    if Path not in leaves and PathText not in leaves:
        return value
    if value == "" or (isinstance(value, list) and "" in value):
        raise UserError(f"{flag}: the path is empty; '.' is the current folder")
    if PathText in leaves or value is None:
        return value
    return [Path(text) for text in value] if isinstance(value, list) else Path(value)


def _leaves(hint: Any) -> Iterator[Any]:
    """Yield the types that a type consists of: those of lists, and alternatives."""
    if IS_PATH in _notes(hint):
        yield PathText
    elif get_origin(hint) in (Annotated, list, Union, UnionType):
        for arg in get_args(hint)[: 1 if get_origin(hint) is Annotated else None]:
            yield from _leaves(arg)
    else:
        yield hint


def _notes(hint: Any) -> tuple[Any, ...]:
    return getattr(hint, "__metadata__", ())


def _flag(parameter: Parameter) -> str:
    """Return the name of a parameter on the command line: `--top-k`, or `RUN` of an argument."""
    for note in _notes(parameter.annotation):
        if isinstance(note, OptionInfo):
            words = (note.default, *(note.param_decls or ()))  # Typer has the first as a default
            named = [word for word in words if isinstance(word, str) and word.startswith("--")]
            if named:
                return named[0]
        if isinstance(note, ArgumentInfo):
            return (note.metavar or parameter.name.strip("_").upper()).removesuffix("...")
    return f"--{parameter.name.strip('_').replace('_', '-')}"
