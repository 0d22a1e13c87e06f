"""Where verbs may write: not into a part of a run, nor into a run deleted meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path

from foreword import atomic
from foreword.errors import UserError

_command: ContextVar[ExitStack] = ContextVar("command")


@contextmanager
def command() -> Iterator[None]:
    """Delimit one command, for `guard_run`."""
    with ExitStack() as stack:
        token = _command.set(stack)
        try:
            yield
        finally:
            _command.reset(token)


def guard_run(run: Path) -> None:
    """Keep this command from recreating parts of a run that is deleted while it works.

    Args:
        run: the run, or comparison, that the command reads and will write results into.
    """
    if (stack := _command.get(None)) is not None:
        stack.enter_context(atomic.guarded(run))


def spare_runs(folder: Path) -> None:
    """Make sure that a folder can be written, and is not a run, a tuned model or a part of one.

    Raises:
        UserError: it cannot, or it is.
    """
    atomic.require_writable(folder, is_folder=True)
    for path in (folder.absolute(), folder.absolute().parent):
        is_trained = any((path / name).is_file() for name in ("run.json", "labels.json"))
        if is_trained and (path / "recipe.toml").is_file():
            raise UserError(f"{folder}: belongs to the model in {path}; choose another --out")
