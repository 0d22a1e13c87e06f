"""The command line: one file per verb, and one way to fail.

Exit status: 0 for success, 2 for a user's mistake (one line that says what and how to fix it),
1 for a bug of Foreword's own, 130 when interrupted. `--debug` shows the traceback.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from foreword.cli._help import FIRST, grouped, write_commands
from foreword.cli._process import (
    INTERRUPTED,
    PEER_ENDED,
    configure_process,
    interrupted_by_signals,
    leave,
)
from foreword.cli._streams import ReaderGoneError, guarded
from foreword.cli.commands import command as command_of
from foreword.cli.commands import refuse_renamed
from foreword.disk.credentials import masked
from foreword.errors import DamagedError, PeerError, UserError, is_out_of_memory, nearest
from foreword.process import launched
from foreword.settings import kinds, plugins

configure_process()  # before torch is first imported

REMEDY = "; restore a copy of it, or make it again"  # of damaged files
LONGEST_WORD = 500  # characters of a message without a space; paths are seldom longer


class _Group(TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        write_commands(self, ctx, formatter, {"Commands": self.list_commands(ctx)})


class _Verbs(TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        write_commands(self, ctx, formatter, grouped(self.list_commands(ctx)))
        formatter.write(f"\n{FIRST}")


def verbs() -> list[str]:
    """Return the names of the verbs, the kinds of `verbs/`, as they are typed."""
    return sorted({*(name.replace("_", "-") for name in kinds.names("verbs")), *groups()})


def groups() -> list[str]:
    """Return the verbs of several commands: the folders of kinds in `verbs/`."""
    return [folder.partition("/")[2] for folder in kinds.folders() if folder.startswith("verbs/")]


def assemble(verb: str | None) -> typer.Typer:
    """Return the application with one verb, or with all of them for the help."""
    names = verbs() if verb is None else [verb]
    return _application(tuple((name, _command_or_group(name)) for name in names))


def _command_or_group(verb: str) -> Any:
    """Return the command of a verb, or the application of a group of them."""
    if verb in groups():
        return _group(f"verbs/{verb}")
    return command_of(kinds.load("verbs", verb.replace("-", "_")))


@lru_cache(64)
def _group(folder: str) -> typer.Typer:
    """Return the application of the verbs in a folder."""
    contract = import_module(f"foreword.{folder.replace('/', '.')}._contract")
    about = (contract.__doc__ or "").partition("\n")[0]
    app = typer.Typer(no_args_is_help=True, help=about, cls=_Group)
    for name in kinds.names(folder):
        app.command(name)(command_of(kinds.load(folder, name)))
    return app


@lru_cache(64)  # for programs that run many commands
def _application(parts: tuple[tuple[str, Any], ...]) -> typer.Typer:
    app = typer.Typer(
        name="foreword",
        help="Pretrain language models of every classic family on your own text.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        cls=_Verbs,
    )
    app.callback()(_global_options)
    for name, command_or_group in parts:
        if isinstance(command_or_group, typer.Typer):
            app.add_typer(command_or_group, name=name)
        else:
            app.command(name)(command_or_group)
    return app


@lru_cache(64)
def _parser(app: typer.Typer) -> Any:
    """Return what parses and runs the commands of an application; it is slow to build."""
    return typer.main.get_command(app)


def _global_options(
    plugins: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="A folder of plug-ins; with any command, repeatable."),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where a fault arose; with any command.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """List the options that every command has; `main` and `_take_plugins` have read them before."""


def _take_plugins(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words without `--plugins DIR`, and the folders."""
    rest: list[str] = []
    folders: list[str] = []
    words = list(words)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":  # what follows is not an option
            return [*rest, word, *words], folders
        if name != "--plugins":
            rest.append(word)
        elif equals or words:
            folders.append(value if equals else words.pop(0))
        else:
            raise UserError("--plugins: needs a folder")
    return rest, folders


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    launched.watch_launcher()
    words = list(sys.argv[1:] if arguments is None else arguments)
    is_debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    with guarded():
        leave(run(words, is_debug=is_debug))


def run(words: list[str], *, is_debug: bool = False) -> int:
    """Run one command; return its exit status."""
    try:
        if "--version" in words[:1]:
            from foreword.version import __version__

            sys.stdout.write(f"foreword {__version__}\n")
            sys.stdout.flush()
            return 0
        _require_utf8(words)
        words, folders = _take_plugins(words)
        words = words or ["--help"]
        with plugins.plugins(folders), _faults_of_plugins(), interrupted_by_signals():
            parser = _parser(assemble(_verb_of(words)))
            try:  # not by click's own `main`, which makes statuses of interrupts
                with parser.make_context("foreword", list(words)) as context:
                    result = parser.invoke(context)
            except typer.Exit as exited:
                result = exited.exit_code
        sys.stdout.flush()  # so that what cannot be written is noticed here
        return result if isinstance(result, int) else 0
    except UserError as error:
        has_no_remedy = isinstance(error, DamagedError) and ";" not in str(error)
        return _fail(f"{error}{REMEDY if has_no_remedy else ''}", 2, is_debug=is_debug)
    except (KeyboardInterrupt, EOFError, typer.Abort) as error:
        if "TORCHELASTIC_RUN_ID" in os.environ:  # the launcher tells, or the first process has
            return INTERRUPTED
        return _fail(f"{error}" or "interrupted", INTERRUPTED, is_debug=is_debug)
    except PeerError as error:
        return _leave_group(error, is_debug=is_debug)
    except ReaderGoneError:
        return 0
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of the option parser
            return _fail(_usage_message(error), 2, is_debug=is_debug)
        if isinstance(error, OSError) and error.filename is not None:
            text = f"{error.filename}: {error.strerror}"
            return _fail(text, 2, is_debug=is_debug)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EBADF, errno.EIO):
            return _fail(f"the output cannot be written: {error.strerror}", 2, is_debug=is_debug)
        if is_out_of_memory(error):
            fitting = "less text" if isinstance(error, MemoryError) else "a smaller model or batch"
            detail = f" ({error})" if str(error) else ""
            return _fail(f"out of memory: {fitting} may fit{detail}", 2, is_debug=is_debug)
        if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # pathlib's
            return _fail(f"{error}: a link leads to itself", 2, is_debug=is_debug)
        text = f"internal error: {type(error).__name__}: {error}; --debug shows where"
        return _fail(text, 1, is_debug=is_debug)


def _verb_of(words: list[str]) -> str | None:
    """Return the verb that the words begin with, if they do.

    Raises:
        UserError: there is no such verb, or one of its options has another name now.
    """
    first = words[0] if words and not words[0].startswith("-") else None
    if first is not None and first not in verbs():
        raise UserError(f"no command '{first}'{nearest(first, verbs())}")
    refuse_renamed(words)
    return first


@contextmanager
def _faults_of_plugins() -> Iterator[None]:
    """Tell of a plug-in's faults by file and line."""
    try:
        yield
    except (UserError, typer.Abort, ReaderGoneError):
        raise
    except Exception as error:
        if not hasattr(error, "format_message") and (text := plugins.fault_line(error)) is not None:
            raise UserError(text) from error
        raise


def _usage_message(error: Any) -> str:
    """Return the message of a usage error, with the arguments or commands that there are."""
    message = str(error.format_message())
    if message.startswith("No such command") and "Did you mean" not in message:  # of a group
        return f"{message.rstrip('.')}; there is: {', '.join(error.ctx.command.commands)}"
    if not message.startswith(("Missing argument", "Got unexpected extra argument")):
        return message
    arguments = [p for p in error.ctx.command.params if p.param_type_name == "argument"]
    words = [argument.metavar or argument.name.upper() for argument in arguments]
    return f"{message.rstrip('.')}; usage: {' '.join([error.ctx.command_path, *words])}"


def _require_utf8(words: list[str]) -> None:
    """Make sure that each argument is text; Python keeps other bytes as lone surrogates."""
    for number, word in enumerate(words, 1):
        try:
            word.encode()
        except UnicodeEncodeError as error:
            escaped = word.encode(errors="backslashreplace").decode()
            raise UserError(
                f"argument {number} ({escaped}), character {error.start + 1}: not UTF-8; write it "
                "as UTF-8, and rename a file whose name is not"
            ) from None


def _leave_group(error: PeerError, *, is_debug: bool) -> int:
    """Return the status of a process that ends because another did, which says why."""
    from foreword.train.joining import wait_for_launcher

    if is_debug:
        traceback.print_exception(error)
    if isinstance(error.__cause__, KeyboardInterrupt):
        return INTERRUPTED
    with suppress(KeyboardInterrupt):
        wait_for_launcher()
    return PEER_ENDED


def _fail(text: str, status: int, *, is_debug: bool) -> int:
    if is_debug:
        traceback.print_exc()
    sys.stderr.write(f"foreword: {' '.join(map(_legible, masked(text).split()))}\n")
    return status


def _legible(word: str) -> str:
    """Return a word for a message; a very long one, such as a recipe's value, loses its middle."""
    if len(word) <= LONGEST_WORD:
        return word
    left_out = len(word) - LONGEST_WORD
    return f"{word[: LONGEST_WORD // 2]}...({left_out:,} more)...{word[-LONGEST_WORD // 2 :]}"
