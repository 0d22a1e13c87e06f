"""Progress displays: a terminal, a notebook, the caller's own, or none."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from foreword.display import lines
from foreword.display.run import RunDisplay
from foreword.errors import UserError


class ProgressDisplay(Protocol):
    """A receiver of a run's progress; a context manager that is entered while the run trains.

    Write one to show progress elsewhere: `foreword.pretrain(..., progress=mine)`.
    """

    def __enter__(self) -> ProgressDisplay:
        """Open the display."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Close the display."""

    def note(self, text: str) -> None:
        """Show a message of one line."""

    def warn(self, text: str) -> None:
        """Show a message that is shown even where others are not wanted."""

    def stage(self, name: str) -> Callable[..., None]:
        """Begin the stage `name`; return a callback of its progress: done, total and notes."""

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Show a record of the run's log, at `progress`, the share of the budget spent."""


class Quiet:
    """A `ProgressDisplay` that shows warnings alone.

    Args:
        warns: whether it shows them; of several processes one does.
    """

    def __init__(self, *, warns: bool = True) -> None:
        self._warns = warns

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def note(self, text: str) -> None:
        """Ignore it."""

    def warn(self, text: str) -> None:
        """Print a line."""
        if self._warns:
            lines.say(text)

    def stage(self, name: str) -> Callable[..., None]:
        """Ignore it."""
        return lambda *_: None

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Ignore it."""


class LiveProgress:
    """A `ProgressDisplay` with a live line, and messages above it.

    Args:
        announces: whether each stage is announced by a line where nothing can be live.
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

    def warn(self, text: str) -> None:
        """Print a line."""
        self._display.note(text)

    def stage(self, name: str) -> Callable[..., None]:
        """Show a stage."""
        return self._display.stage(name)

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Show a record."""
        self._display.record(record, progress)


def progress_of(progress: bool | ProgressDisplay, *, announces: bool = False) -> ProgressDisplay:
    """Return a progress display: a live one for True, a quiet one for False.

    Args:
        progress: the argument `progress` of the API's functions.
        announces: as in `LiveProgress`.

    Raises:
        UserError: it is neither, nor a display.
    """
    if isinstance(progress, bool):
        return LiveProgress(announces=announces) if progress else Quiet()
    methods = ("__enter__", "__exit__", "note", "warn", "stage", "record")
    if lacking := [name for name in methods if not hasattr(progress, name)]:
        raise UserError(
            f"progress: expected True, False or a display; {progress!r} has no method {lacking[0]}"
        )
    return progress
