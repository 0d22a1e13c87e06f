"""Progress displays: a terminal, a notebook, the caller's own, or none."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from foreword.display import lines
from foreword.display.run import LiveProgress
from foreword.errors import UserError
from foreword.runs.stages import ProgressReporter, Silent


class ProgressDisplay(ProgressReporter, Protocol):
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


class Quiet(Silent):
    """A `ProgressDisplay` that shows warnings alone.

    Args:
        warns: whether it shows them; of several processes one does.
    """

    def __init__(self, *, warns: bool = True) -> None:
        super().__init__(*[lines.say] * warns)

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def progress_of(progress: bool | ProgressDisplay, *, announces: bool = False) -> ProgressDisplay:
    """Return a progress display: a live one for True, a quiet one for False.

    Args:
        progress: the argument `progress` of the API's functions.
        announces: as in `LiveProgress`.

    Raises:
        UserError: it is neither, nor a display.
    """
    if isinstance(progress, bool):
        return LiveProgress(lines.progress(), announces=announces) if progress else Quiet()
    methods = ("__enter__", "__exit__", "note", "warn", "stage", "record")
    if lacking := [name for name in methods if not hasattr(progress, name)]:
        raise UserError(
            f"progress: expected True, False or a display; {progress!r} has no method {lacking[0]}"
        )
    return progress
