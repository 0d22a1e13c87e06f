"""The command of a verb: its options, and how its result is printed, from the verb's fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from foreword.display import results
from foreword.errors import PeerError, UserError
from foreword.settings import describe
from foreword.verbs._contract import Verb, VerbArgument, arguments_of
from foreword.verbs._run import TrainsRun

# Options that are gone, by verb, and the option or the command that does their work.
RENAMED = {
    ("evaluate", "--memory"): "--context-lengths",
    ("evaluate", "--suite"): "foreword probe RUN... NAME --data FILES",
    ("probe", "--kind"): "foreword probe RUN... NAME",
    ("tune", "--suite"): "foreword tune-suite RUN SUITE --data DIR",
}
JSON = typer.Option("--json", help="Print one JSON document.")
QUIET = typer.Option("--quiet", help="Show no progress: only the result, warnings and errors.")


def command(verb: type[Verb[Any]]) -> Callable[..., int]:
    """Return the command of a verb, as typer takes it."""
    arguments = [argument for argument in arguments_of(verb) if argument.words is not None]
    shows_progress = any(argument.name == "progress" for argument in arguments_of(verb))

    def called(json: bool = False, quiet: bool = False, **words: Any) -> int:
        given = {name: value for name, value in words.items() if value not in (None, [])}
        if shows_progress:
            given["progress"] = not quiet
        made = verb(**given)
        if not isinstance(made, TrainsRun):
            result = (made if json else made.on_screen())()
            results.show(result, as_json=json)
            return int(result.status)
        from foreword.cli import _launch

        if (status := _launch.in_processes(made)) is not None:
            return status
        try:
            trained = made()
        except (KeyboardInterrupt, PeerError) as error:
            return _launch.interrupted(made, error)
        _launch.show(trained, as_json=json)
        return trained.status

    switches = {"json": JSON} | ({"quiet": QUIET} if shows_progress else {})
    parameters = [_parameter(argument) for argument in arguments] + [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, switch]
        )
        for name, switch in switches.items()
    ]
    called.__doc__ = _help(verb)
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called


def refuse_renamed(words: Sequence[str]) -> None:
    """Check that a command has no option of `RENAMED`.

    Raises:
        UserError: it has one.
    """
    for word in words[1:]:
        option = word.partition("=")[0]
        if new := RENAMED.get((words[0], option)):
            raise UserError(f"{option}: now '{new}'")


def _parameter(argument: VerbArgument) -> inspect.Parameter:
    """Return an argument as typer takes it."""
    mark, words = argument.mark, argument.words
    is_required = mark.is_required or argument.default is inspect.Parameter.empty
    text = _sentence(argument.meaning)
    if mark.is_argument:
        note: Any = typer.Argument(help=text, metavar=mark.metavar or argument.flag)
    else:
        metavar = mark.metavar or ("PATH" if argument.is_path else None)
        names = mark.names or [argument.flag]
        if argument.default is True:
            names = [f"{names[0]}/--no-{names[0].removeprefix('--')}"]
        note = typer.Option(*names, help=text, metavar=metavar)
    default = argument.default
    if not is_required and not isinstance(default, bool | int | float | str):
        default = None  # left out, the verb has its own
    if default == "":
        note.show_default = False
    hint = words if is_required or isinstance(default, bool | int | float | str) else words | None
    return inspect.Parameter(
        argument.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if is_required else default,
        annotation=Annotated[hint, note],
    )


def _sentence(text: str) -> str:
    """Return a meaning as a sentence, as helps have it."""
    if text[:1].islower() and text.partition(" ")[0].replace("-", "").rstrip(",").isalpha():
        text = text[:1].upper() + text[1:]
    return text if not text or text.endswith((".", "!", "?", ")", '"')) else f"{text}."


def _help(verb: type[Verb[Any]]) -> str:
    """Return the text of a verb without its arguments and its example in Python."""
    text = describe.SECTION.sub("", inspect.cleandoc(verb.__doc__ or "") + "\n")
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(p for p in paragraphs if not p.startswith("    "))
