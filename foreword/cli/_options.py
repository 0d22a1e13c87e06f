"""Groups of options: a dataclass whose fields are separate options on the command line.

@dataclass(frozen=True)
class Reading(Options):
    field: Annotated[str | None, typer.Option(help="Field of the text.")] = None

def score(run: Run, reading: Reading) -> None: ...      foreword score RUN --field body

A number's range comes with its type, as in settings: `Annotated[Share, typer.Option(...)]`.
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
    """A group of options, which a verb takes as one parameter."""


def flat(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Return `verb` with each group of options replaced by its fields, and numbers checked.

    Typer sees the types without their ranges, since it would check them with messages of its own.
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
            check(options[name].annotation, value, _flag(options[name]))
        for name, group in groups.items():
            values[name] = group(**{f.name: values.pop(f.name) for f in fields(group)})
        return verb(**values)

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


def _without_range(hint: Any, plain: Any) -> Any:
    """Return the plain type with the annotations of `hint`, except its range."""
    notes = [n for n in getattr(hint, "__metadata__", ()) if not isinstance(n, Interval)]
    return Annotated[plain, *notes] if notes else plain


def _flag(parameter: Parameter) -> str:
    """Return the name of a parameter on the command line: `--top-k`."""
    for note in getattr(parameter.annotation, "__metadata__", ()):
        if isinstance(note, OptionInfo) and note.param_decls:
            return note.param_decls[0]
    return f"--{parameter.name.strip('_').replace('_', '-')}"
