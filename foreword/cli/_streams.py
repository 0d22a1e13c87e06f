"""Standard streams that may be closed, on a full disk, or read by a program that ends.

A message that cannot be written is lost, and the work continues: a training does not end because
nobody looks. Output that cannot be written ends the command, in one line; quietly where its reader
has enough, as in `foreword show recipes | head -1`.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from foreword.disk.credentials import masked
from foreword.errors import UserError


class ReaderGoneError(Exception):
    """The reader of the output went away; an `OSError` would be handled by other libraries."""


# The last where a signal's handler writes in the middle of a write.
FAILURES = (OSError, ValueError, RuntimeError)


@contextmanager
def guarded() -> Iterator[None]:
    """Replace the standard streams of this process with guarded ones."""
    _open_closed_streams()
    before = sys.stdout, sys.stderr
    sys.stdout = _Output(sys.stdout or _open(1))
    sys.stderr = _Messages(sys.stderr or _open(2))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _open_closed_streams() -> None:
    """Open a null device for each standard stream that is closed."""
    # Or the next file opened would receive its number, and messages would end up in it. What is
    # written to a closed output still fails, for the device is opened for reading.
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # the lowest free number: this one


def _open(number: int) -> TextIO:
    return os.fdopen(number, "w", errors="backslashreplace", closefd=False)


class _Guarded(ABC):
    """A text stream; what it cannot write is dropped before `_failed` decides.

    Args:
        file: the stream itself.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write a text without credentials; return its length."""
        try:
            self._file.write(masked(text))
        except FAILURES as error:
            self._handle(error)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        try:
            self._file.flush()
        except FAILURES as error:
            self._handle(error)

    def _handle(self, error: Exception) -> None:
        """Drop what is buffered, or it would be written again with the next text and at the end."""
        with suppress(*FAILURES):
            number = self._file.fileno()
            saved, null = os.dup(number), os.open(os.devnull, os.O_WRONLY)
            try:
                os.dup2(null, number)
                self._file.flush()
            finally:
                os.dup2(saved, number)
                os.close(saved)
                os.close(null)
        self._failed(error)

    @abstractmethod
    def _failed(self, error: Exception) -> None:
        """Continue, or raise the error that ends the command."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _Messages(_Guarded):
    """The error stream: what cannot be written is lost."""

    def _failed(self, error: Exception) -> None:
        """Continue."""


class _Output(_Guarded):
    """The output: what cannot be written ends the command."""

    def _failed(self, error: Exception) -> None:
        """Raise what ends it."""
        if isinstance(error, BrokenPipeError):
            raise ReaderGoneError from error
        if isinstance(error, OSError):
            raise UserError(f"the output cannot be written: {error.strerror}") from error
        raise error
