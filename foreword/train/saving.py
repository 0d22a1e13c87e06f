"""Saving while training goes on: a thread writes copies of the tensors.

Of a sharded model each process writes files of its own. The first makes the folder, waits for the
sizes and checksums of the others' files, writes the manifest with all of them, and gives the folder
its name. So a checkpoint has its name when every file is on the disk, and not before.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from foreword.disk import atomic, stored
from foreword.errors import NotFiniteError, UserError
from foreword.train import checkpoint, joining, processes
from foreword.train.checkpoint import Contents
from foreword.train.joining import Notes

LEAVING = 5.0  # seconds that a thread has to end, once it is not waited for


class Saver:
    """Writes the checkpoints of a training, one after another.

    What lies on the CPU and is not sharded is written at once, since a copy would take memory that
    training needs. As a context, it waits for the last one.
    """

    def __init__(self) -> None:
        self._notes = joining.new_notes()
        self._number = 0
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._is_abandoned = threading.Event()

    def save(self, folder: Path, contents: Contents, then: Callable[[], None]) -> None:
        """Write a checkpoint, after the one before.

        Args:
            folder: the checkpoint.
            contents: what this process writes of it.
            then: called once it has its name, in the first process.

        Raises:
            UserError: this one, or the one before, cannot be written.
        """
        self.wait()
        self._number += 1
        writing = _Writing(
            folder, contents, then, self._raise_if_abandoned, self._notes, self._number
        )
        if contents.is_on_cpu and contents.share.count == 1:
            writing.run()
        else:
            writing.contents = contents.copied()
            self._thread = threading.Thread(target=self._run, args=(writing,), daemon=True)
            self._thread.start()

    def check(self) -> None:
        """Raise the error of the last checkpoint, if it has failed."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wait(self) -> None:
        """Wait for the last checkpoint.

        All processes wait together, so that they notice if one of them has ended.

        Raises:
            UserError: it cannot be written.
        """
        while any(processes.totals(self._is_busy())):
            self.check()
            time.sleep(0.05)  # in Python, where a signal can end it
        self._thread = None
        self.check()

    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.wait()
        elif isinstance(error, NotFiniteError):  # in all processes
            with suppress(UserError):
                self.wait()
        elif self._thread is not None:
            self._is_abandoned.set()
            self._thread.join(LEAVING)

    def _run(self, writing: _Writing) -> None:
        try:
            writing.run()
        except _AbandonedError:
            pass
        except BaseException as error:
            self._error = error

    def _raise_if_abandoned(self) -> None:
        if self._is_abandoned.is_set():
            raise _AbandonedError


class _AbandonedError(Exception):
    """Nobody waits for the checkpoint."""


class _Writing:
    """The writing of one checkpoint, in one of the processes."""

    def __init__(
        self,
        folder: Path,
        contents: Contents,
        then: Callable[[], None],
        before_each: Callable[[], None],
        notes: Notes | None,
        number: int,
    ) -> None:
        self.contents = contents
        self._folder, self._then, self._before_each = folder, then, before_each
        self._notes, self._number = notes, number

    def run(self) -> None:
        """Write what this process has to; of the first process, the checkpoint."""
        share = self.contents.share
        if processes.is_first():
            others = self if share.count > 1 and self._notes is not None else None
            checkpoint.publish(self._folder, self.contents, self._before_each, others)
            self._then()
        elif self.contents.files:
            assert self._notes is not None
            self._notes.read(f"{self._number}/begun", self._before_each)
            with atomic.user_errors(self._folder):
                files = self.contents.write(atomic.partial_folder(self._folder), self._before_each)
            self._notes.post(f"{self._number}/{share.number}", stored.to_json(files))

    def begin(self) -> None:
        """Tell the other processes that the folder exists (`checkpoint.Others`)."""
        assert self._notes is not None
        self._notes.post(f"{self._number}/begun")

    def finished(self) -> dict[str, dict[str, Any]]:
        """Wait for the others; return sizes and checksums of their files (`checkpoint.Others`)."""
        assert self._notes is not None
        files: dict[str, dict[str, Any]] = {}
        for number in range(1, self.contents.share.count):
            note = f"{self._number}/{number}"
            files |= json.loads(self._notes.read(note, self._before_each))
            self._notes.remove(note)
        self._notes.remove(f"{self._number}/begun")
        return files
