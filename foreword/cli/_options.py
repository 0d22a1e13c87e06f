"""Options that verbs share: a dataclass whose fields stand on the command line one by one.

@dataclass(frozen=True)
class Reading(Options):
    field: Annotated[str | None, typer.Option(help="Where the text stands.")] = None

def score(run: Run, reading: Reading) -> None: ...      foreword score RUN --field body
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from inspect import Parameter
from typing import Any, get_type_hints


@dataclass(frozen=True)
class Options:
    """What a verb takes as one parameter, and a person says in several."""


def flat(verb: Callable[..., Any]) -> Callable[..., Any]:
    """`verb` as typer is to see it: with the fields of `Options` in the place of each."""
    hints = get_type_hints(verb, include_extras=True)
    groups = {
        name: hint
        for name, hint in hints.items()
        if isinstance(hint, type) and issubclass(hint, Options)
    }
    if not groups:
        return verb
    parameters: list[Parameter] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        if name in groups:
            parameters += _parameters(groups[name])
        else:
            parameters.append(_parameter(name, hints[name], parameter.default))

    @wraps(verb)
    def called(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{f.name: given.pop(f.name) for f in fields(group)})
        return verb(**given)

    returned = hints.pop("return", None)
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": returned}
    return called


def _parameters(group: type[Options]) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    empty = Parameter.empty
    return [
        _parameter(f.name, hints[f.name], empty if f.default is MISSING else f.default)
        for f in fields(group)
    ]


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)
