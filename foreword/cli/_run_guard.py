"""Where verbs may write: not into a part of a run, nor into a run deleted meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path

from foreword.disk import atomic

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
