"""What work in progress tells: one protocol of four methods, and the names of a run's stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

# A stage's name -> what takes its progress: what is done, the total (0 if unknown), and notes.
Stage = Callable[[str], Callable[..., None]]

TRAINING = "training"  # the steps themselves
EVALUATING = "evaluating"  # between steps: the held-out loss, and samples
SAVING = "saving"  # between steps: a checkpoint
LOOP_STAGES = (TRAINING, EVALUATING, SAVING)  # they follow each other until the budget is spent


def unwatched(_: str) -> Callable[..., None]:
    """Report no stage."""
    return lambda *_: None


class ProgressReporter(Protocol):
    """A receiver of the progress of work, such as the live line of a terminal."""

    def note(self, text: str) -> None:
        """Show a message of one line."""

    def warn(self, text: str) -> None:
        """Show a message that is shown even where others are not wanted."""

    def stage(self, name: str) -> Callable[..., None]:
        """Begin the stage `name`; return a callback of its progress: done, total and notes."""

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Show a record of the run's log, at `progress`, the share of the budget spent."""


class Silent:
    """A `ProgressReporter` that shows nothing.

    Args:
        warn: receives the warnings.
    """

    def __init__(self, warn: Callable[[str], object] = lambda text: None) -> None:
        self._warn = warn

    def note(self, text: str) -> None:
        """Ignore it."""

    def warn(self, text: str) -> None:
        """Pass it on."""
        self._warn(text)

    def stage(self, name: str) -> Callable[..., None]:
        """Ignore it."""
        return lambda *_: None

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Ignore it."""


class Prefixed:
    """A `ProgressReporter` that names a part of the work before each line.

    Args:
        progress: shows the whole.
        prefix: what stands before messages and stages.
    """

    def __init__(self, progress: ProgressReporter, prefix: str) -> None:
        self._progress, self._prefix = progress, prefix

    def note(self, text: str) -> None:
        """Show a message."""
        self._progress.note(f"{self._prefix}{text}")

    def warn(self, text: str) -> None:
        """Show a warning."""
        self._progress.warn(f"{self._prefix}{text}")

    def stage(self, name: str) -> Callable[..., None]:
        """Show a stage."""
        return self._progress.stage(f"{self._prefix}{name}")

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Show a record."""
        self._progress.record(record, progress)
