"""A verb: what a user can do, as a frozen dataclass whose fields are its arguments.

    @dataclass(frozen=True)
    class Fill(Verb[FilledResult]):
        \"\"\"Fill the blanks of a text.

        Attributes:
            run: a run folder, or one of its checkpoints.
            top: candidates to show for each blank.
        \"\"\"

        run: Annotated[PathName, ARGUMENT]
        top: Count = 5

        def __call__(self) -> FilledResult: ...

`foreword.fill` is `function(Fill)`. The command `foreword fill`, its options and its `--help`
derive from the same fields, and so do the checks of types and ranges.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import operator
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import MISSING, dataclass, fields
from os import PathLike
from typing import (
    Annotated,
    Any,
    Generic,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from foreword.errors import UserError, nearest
from foreword.settings import config, describe, kinds
from foreword.settings.ranges import check, hints_of
from foreword.verbs._arguments import PathName as PathName
from foreword.verbs._arguments import Paths as Paths
from foreword.verbs._arguments import Settings as Settings
from foreword.verbs._arguments import require_path

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Flag:
    """What the command line makes of a field, where name and type do not tell.

    Attributes:
        names: names of the option, `("--data", "--file")`; default: that of the field.
        takes: type of the words, of a field that also takes what no command line can hold.
        metavar: what the help calls a value.
        is_argument: whether it is known by its position.
        is_required: whether the command needs it though the function does not.
        is_hidden: whether only Python has it.
        is_command_only: whether only the command line has it.
    """

    names: tuple[str, ...] = ()
    takes: Any = None
    metavar: str | None = None
    is_argument: bool = False
    is_required: bool = False
    is_hidden: bool = False
    is_command_only: bool = False


PLAIN = (bool, int, float, str, types.NoneType)
ARGUMENT = Flag(is_argument=True)
SET = Flag(("--set",), takes=list[str])
PYTHON_ONLY = Flag(is_hidden=True)
REQUIRED = Flag(is_required=True)


class Verb(Generic[R], ABC):
    """The base of all verbs; see the module's text.

    Numbers, texts and truth values must be of their field's type, numbers in its range, and paths
    must be paths. Numbers of numpy become Python's. All else is checked where it is used.
    """

    def __post_init__(self) -> None:
        for argument in arguments_of(type(self)):
            value = argument.checked(getattr(self, argument.name))
            object.__setattr__(self, argument.name, value)

    def refuse(self, names: Collection[str], why: str) -> None:
        """Raise UserError, with the reason `why`, unless arguments have their defaults."""
        for argument in arguments_of(type(self)):
            is_given = getattr(self, argument.name) != argument.default
            is_optional = argument.default is not inspect.Parameter.empty
            if argument.name in names and is_optional and is_given:
                raise UserError(f"{argument.flag}: {why}")

    @abstractmethod
    def __call__(self) -> R:
        """Do it.

        Raises:
            UserError: an argument is wrong, or something is in the way.
        """

    def on_screen(self) -> Verb[R]:
        """Return the verb as its command runs it without `--json`; by default the same."""
        return self


@dataclass(frozen=True)
class VerbArgument:
    """An argument of a verb, as its function, its command and its documents have it.

    Attributes:
        name: the field's.
        hint: the type with its range.
        default: the default; `inspect.Parameter.empty` if it is required.
        meaning: what it does.
        mark: how the command line shows it.
        words: the type of its words on the command line: bool, int, float, str, or a list of one.
        is_path: whether a word is a path.
    """

    name: str
    hint: Any
    default: Any
    meaning: str
    mark: Flag

    @property
    def flag(self) -> str:
        """Its name on the command line, and in messages: `--top-k`, or `RUN` of a position."""
        plain = self.name.strip("_")
        if self.mark.is_argument:
            return (self.mark.metavar or plain.upper()).removesuffix("...")
        return (*self.mark.names, f"--{plain.replace('_', '-')}")[0]

    @property
    def plain(self) -> Any:
        """The type without its range if it is made of numbers, texts and booleans; else None."""
        return _plain(self.hint)

    @property
    def words(self) -> Any:
        """The type of its words: bool, int, float, str or a list of these; None if it has none."""
        return None if self.mark.is_hidden else _words(self.mark.takes or self.hint)

    @property
    def is_path(self) -> bool:
        """Whether its words are paths."""
        return any(map(_is_path, _leaves(self.mark.takes or self.hint)))

    def checked(self, value: Any) -> Any:
        """Return a value as the verb has it.

        Raises:
            UserError: it is not of the type, not in the range, or not a path.
        """
        if self.plain is not None:
            value = config.convert(self.plain, value, self.flag)
        check(self.hint, value, self.flag)
        leaves = _leaves(self.hint)
        if not self.is_path or (value is None and types.NoneType in leaves):
            return value
        is_one = isinstance(value, str | PathLike)
        is_number = isinstance(value, numbers.Real) and bool({int, float} & {*leaves})
        takes_others = not all(_is_path(leaf) or leaf in PLAIN for leaf in leaves)
        if not is_one and (is_number or takes_others):
            are_files = isinstance(value, list) and get_origin(self.words) is list
            for item in value if are_files else ():
                if isinstance(item, str):
                    require_path(item, self.flag)
            return value
        takes_several = get_origin(_words(self.hint)) is list
        is_of_texts = takes_several and self.name == "data"
        if is_one or not takes_several:
            require_path(value, self.flag, is_of_texts=is_of_texts)
            return value
        from foreword.tables.given import items_of

        items = items_of(value, self.flag, "paths")
        return tuple(require_path(item, self.flag, is_of_texts=is_of_texts) for item in items)


@functools.cache
def arguments_of(verb: type[Verb[Any]]) -> tuple[VerbArgument, ...]:
    """Return the arguments of a verb, in the order of its constructor."""
    meanings = describe.meanings(verb)
    hints = hints_of(verb)
    by_name = {f.name: f for f in fields(verb)}  # type: ignore[arg-type]
    arguments = []
    for name in list(inspect.signature(verb).parameters):
        f = by_name[name]
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        notes = getattr(hints[name], "__metadata__", ())
        marks = [note for note in notes if isinstance(note, Flag)]
        arguments.append(
            VerbArgument(
                name,
                hints[name],
                inspect.Parameter.empty if default is MISSING else default,
                meanings.get(name, ""),
                marks[0] if marks else Flag(),
            )
        )
    return tuple(arguments)


def function(verb: Callable[P, Verb[R]]) -> Callable[P, R]:
    """Return the function of a verb: it takes the verb's fields, and returns what it returns.

    Its signature, for completion and `help`, is the constructor's, and its docstring the class's.
    """
    cls: Any = verb
    name = cls.__module__.rpartition(".")[2]
    signature = _plain_signature(cls)

    @functools.wraps(cls, assigned=("__module__",), updated=())
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        for key in kwargs:
            if key not in signature.parameters:
                hint = nearest(key, list(signature.parameters))
                raise TypeError(f"{name}() has no argument '{key}'{hint}")
        return verb(*args, **kwargs)()

    named: Any = called
    named.__name__ = named.__qualname__ = name
    named.__doc__ = described(cls)
    named.__signature__ = signature
    del named.__wrapped__
    return called


def functions(name: str) -> object:
    """Return the function of the verb called `name`, or those of the commands of a group."""
    if f"verbs/{name}" in kinds.folders():
        folder = f"verbs/{name}"
        commands = {command: kinds.load(folder, command) for command in kinds.names(folder)}
        return types.SimpleNamespace(**{n: function(verb) for n, verb in commands.items()})
    return function(kinds.load("verbs", name.rstrip("_")))


def _plain_signature(cls: Any) -> inspect.Signature:
    """Return the signature of a verb's function, with types as a reader wants them."""
    parameters, hints = inspect.signature(cls).parameters, hints_of(cls)
    returns = inspect.signature(cls.__call__).return_annotation
    return inspect.Signature(
        [parameters[n].replace(annotation=_shown(hints[n])) for n in _python_names(cls)],
        return_annotation=returns,
    )


def _python_names(verb: type[Verb[Any]]) -> list[str]:
    return [a.name for a in arguments_of(verb) if not a.mark.is_command_only]


def _shown(hint: Any) -> Any:
    """Return a type without notes."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _shown(args[0])
    if origin in (Union, types.UnionType):
        return functools.reduce(operator.or_, map(_shown, args))
    return Sequence[_shown(args[0])] if origin is Sequence else hint  # type: ignore[misc]


def described(verb: type[Verb[Any]]) -> str:
    """Return the docstring of a verb's function: its text, and all its arguments."""
    text = describe.SECTION.sub("", inspect.cleandoc(verb.__doc__ or "") + "\n").rstrip()
    names = _python_names(verb)
    lines = [f"    {a.name}: {a.meaning}" for a in arguments_of(verb) if a.name in names]
    return "\n".join([text, "", "Args:", *lines])


def _plain(hint: Any) -> Any:
    """Return a type without its range if it is made of numbers, texts and booleans; else None."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _plain(args[0])
    if origin in (Union, types.UnionType):
        parts = [arg if arg is types.NoneType else _plain(arg) for arg in args]
        return None if None in parts else functools.reduce(operator.or_, parts)
    return hint if hint in (bool, int, float, str) else None


def _leaves(hint: Any) -> list[Any]:
    """Return the types that a type consists of: those of sequences, and alternatives."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _leaves(args[0])
    if origin in (Union, types.UnionType, list, Sequence):
        return [leaf for arg in args for leaf in _leaves(arg)]
    return [hint]


def _is_path(leaf: Any) -> bool:
    return PathLike in (leaf, get_origin(leaf))


def _words(hint: Any) -> Any:
    """Return the type that a command line's words have for a type; None if it has none."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _words(args[0])
    if origin in (list, Sequence):
        inner = _words(args[0])
        return list[inner] if inner in (int, float, str) else inner  # type: ignore[valid-type]
    if origin in (Union, types.UnionType):
        kinds = [words for arg in args if (words := _words(arg)) is not None]
        lists = [words for words in kinds if get_origin(words) is list]
        return (lists or kinds or [None])[0]
    if hint is PathLike or origin is PathLike:
        return str
    return hint if hint in (bool, int, float, str) else None
