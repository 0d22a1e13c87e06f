"""Who is shown how the work goes: a terminal, a notebook, somebody else's code, nobody."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from foreword.display import lines
from foreword.display.run import RunDisplay


class ProgressDisplay(Protocol):
    """What is told of the work; entered while a run is trained.

    Write one to show progress elsewhere: `foreword.pretrain(..., progress=mine)`.
    """

    def __enter__(self) -> ProgressDisplay:
        """Begin to show."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Show no more."""

    def note(self, text: str) -> None:
        """Take a line worth reading."""

    def stage(self, name: str) -> Callable[..., None]:
        """Take the name of the stage that begins; return what takes done, total and notes."""

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Take a record of the run's log, and the share of the budget that is spent."""


class Quiet:
    """No progress at all (`ProgressDisplay`)."""

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def note(self, text: str) -> None:
        """Ignore it."""

    def stage(self, name: str) -> Callable[..., None]:
        """Ignore it."""
        return lambda *_: None

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Ignore it."""


class LiveProgress:
    """A live line, and lines of what is worth reading (`ProgressDisplay`).

    Args:
        announces: whether each stage is a line where there is no live one.
    """

    def __init__(self, *, announces: bool = True) -> None:
        self._bar = lines.progress()
        self._display = RunDisplay(self._bar, announces=announces)

    def __enter__(self) -> LiveProgress:
        self._bar.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._bar.__exit__(kind, error, at)

    def note(self, text: str) -> None:
        """Print a line."""
        self._display.note(text)

    def stage(self, name: str) -> Callable[..., None]:
        """Show a stage."""
        return self._display.stage(name)

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Show a record."""
        self._display.record(record, progress)


def progress_of(shown: bool | ProgressDisplay, *, announces: bool = False) -> ProgressDisplay:
    """Return what shows the progress: True for the usual, False for none.

    Args:
        shown: what the caller of a function gave.
        announces: as in `LiveProgress`.
    """
    if isinstance(shown, bool):
        return LiveProgress(announces=announces) if shown else Quiet()
    return shown
