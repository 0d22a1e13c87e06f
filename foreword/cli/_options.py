"""Options that verbs share: a dataclass whose fields stand on the command line one by one.

@dataclass(frozen=True)
class Reading(Options):
    field: Annotated[str | None, typer.Option(help="Where the text stands.")] = None

def score(run: Run, reading: Reading) -> None: ...      foreword score RUN --field body

A number's range is stated with its type, as in settings: `Annotated[Share, typer.Option(...)]`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, get_type_hints

from annotated_types import Interval
from typer.models import OptionInfo

from foreword.ranges import check


@dataclass(frozen=True)
class Options:
    """What a verb takes as one parameter, and a person says in several."""


def flat(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Return `verb` with the fields of `Options` in the place of each, and its numbers checked.

    Typer sees the types without their ranges: it would check them too, in words of its own.
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
    def called(**given: Any) -> Any:
        for name, value in given.items():
            check(options[name].annotation, value, _said(options[name]))
        for name, group in groups.items():
            given[name] = group(**{f.name: given.pop(f.name) for f in fields(group)})
        return verb(**given)

    parameters = [
        option.replace(annotation=_without_range(option.annotation, plain[name]))
        for name, option in options.items()
    ]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    called.__annotations__["return"] = hints.get("return")
    return called


def options_of(verb: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the arguments and options of a verb by name, with the ranges of their types."""
    hints = get_type_hints(verb, include_extras=True)
    found: list[Parameter] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        if isinstance(hints[name], type) and issubclass(hints[name], Options):
            found += _fields(hints[name])
        else:
            found.append(_parameter(name, hints[name], parameter.default))
    return {parameter.name: parameter for parameter in found}


def _fields(group: type[Options]) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    empty = Parameter.empty
    return [
        _parameter(f.name, hints[f.name], empty if f.default is MISSING else f.default)
        for f in fields(group)
    ]


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _without_range(hint: Any, plain: Any) -> Any:
    """Return the plain type with the notes of `hint` but its range."""
    notes = [n for n in getattr(hint, "__metadata__", ()) if not isinstance(n, Interval)]
    return Annotated[plain, *notes] if notes else plain


def _said(parameter: Parameter) -> str:
    """Return the name of a parameter on the command line: `--top-k`."""
    for note in getattr(parameter.annotation, "__metadata__", ()):
        if isinstance(note, OptionInfo) and note.param_decls:
            return note.param_decls[0]
    return f"--{parameter.name.strip('_').replace('_', '-')}"
