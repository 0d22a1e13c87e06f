"""What work in progress tells: one protocol of four methods, and the names of a run's stages."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from foreword.disk import atomic, stored
from foreword.errors import DamagedError, UserError

# A stage's name -> what takes its progress: what is done, the total (0 if unknown), and notes.
Stage = Callable[[str], Callable[..., None]]

TRAINING = "training"  # the steps themselves
EVALUATING = "evaluating"  # between steps: the held-out loss, and samples
SAVING = "saving"  # between steps: a checkpoint
JOBS = "jobs beside each other"  # which go on while the stages of what ended come between
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


PROGRESS = "progress.json"
OFTEN = 1.0  # seconds between two writes


class _Written(Prefixed):
    """A `ProgressReporter` that writes what is done to a folder too."""

    def __init__(self, progress: ProgressReporter, folder: Path) -> None:
        super().__init__(progress, "")
        self._folder, self._last = folder, 0.0

    def stage(self, name: str) -> Callable[..., None]:
        """Begin a stage."""
        shown = super().stage(name)

        def report(done: int = 0, total: int = 0, *notes: Any, **more: Any) -> None:
            shown(done, total, *notes, **more)
            if time.monotonic() - self._last >= OFTEN:
                self._last = time.monotonic()
                with suppress(UserError):  # those who watch can wait
                    content = {"stage": name, "done": done, "total": total}
                    stored.write(self._folder / PROGRESS, content)

        return report


def progress_folder(folder: Path) -> Path:
    """Return where work that will write `folder` tells who looks how far it has come."""
    return folder.with_name(f".{folder.name}.progress")


@contextmanager
def watchable(progress: ProgressReporter, folder: Path) -> Iterator[ProgressReporter]:
    """Yield a reporter that also writes what is done to a folder, which is locked and then removed.

    Raises:
        UserError: another process does the same work.
    """
    is_first = not folder.parent.exists()
    with atomic.locked(folder):
        try:
            yield _Written(progress, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            if is_first:
                with suppress(OSError):  # it holds something
                    folder.parent.rmdir()


def read_progress(folder: Path) -> dict[str, Any] | None:
    """Return what `watchable` work last wrote to a folder; None if no process does it."""
    if not atomic.is_locked(folder):
        return None
    progress = {"stage": "starting", "done": 0, "total": 0}
    with suppress(DamagedError):  # or nothing is written yet
        progress |= {key: stored.read(folder / PROGRESS)[key] for key in progress}
    return progress
