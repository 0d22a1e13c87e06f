"""Where verbs may write: not into a run, whose parts belong together, nor where one has gone."""

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
    """The time of one command, for `guard_run`."""
    with ExitStack() as stack:
        token = _command.set(stack)
        try:
            yield
        finally:
            _command.reset(token)


def guard_run(run: Path) -> None:
    """Keeps this command from making a run anew, in part, that is removed meanwhile.

    Args:
        run: what it reads and will write results into.
    """
    if (stack := _command.get(None)) is not None:
        stack.enter_context(atomic.staying(run))


def spare_runs(folder: Path) -> None:
    """Makes sure that a folder is no run, no tuned model and no part of one.

    Raises:
        UserError: it is.
    """
    atomic.require_no_device(folder)
    for place in (folder.absolute(), folder.absolute().parent):
        is_trained = any((place / name).is_file() for name in ("run.json", "labels.json"))
        if is_trained and (place / "recipe.toml").is_file():
            raise UserError(f"{folder}: belongs to a model, in {place}; choose another --out")
