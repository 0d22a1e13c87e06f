"""The errors a user can meet: one clear line each, what is wrong, where, and how to fix it."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Mapping

from foreword.disk.credentials import masked

INTERRUPTED = 130  # the exit status, which shells give to Ctrl-C
LISTED = 50  # words that a message names


def quoted_command(*words: object) -> str:
    """Return a command of foreword in quotation marks, its words quoted for a shell.

    Args:
        words: those after `foreword`; a path may hold blanks.
    """
    line = shlex.join(["foreword", *map(str, words)])
    return f'"{line}"' if "'" in line else f"'{line}'"


class UserError(Exception):
    """A mistake in Foreword's input: a path, a text, a recipe, a command.

    The command line prints its message as one line and exits with status 2. Any other exception is
    a bug in Foreword and exits with status 1.
    """

    def __str__(self) -> str:
        return masked(super().__str__())


class RangeError(UserError, ValueError):
    """A number is outside the range of its setting; the message begins with the setting's name."""


class TooLongError(UserError):
    """A text is longer than a model can read, or there are more of them than are taken at once."""


class VocabSizeError(UserError):
    """A text supports no vocabulary of the requested size.

    Args:
        message: one line.
        fitting: a size that it supports.
    """

    def __init__(self, message: str, fitting: int) -> None:
        super().__init__(message)
        self.fitting = fitting


class NoFileError(UserError):
    """A file that a setting names does not exist."""


class DamagedError(UserError):
    """A stored file is not as it was written; another checkpoint, or a new one, is needed."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out: Python's, a device's or torch's on the CPU."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


class NotFiniteError(UserError):
    """Values to be written hold nan or infinity; nothing is written."""


class TrainingStoppedError(UserError):
    """Training cannot continue (the loss is no longer finite); names the last good checkpoint."""


class PeerError(Exception):
    """Another process of a training ended, and says why; this one ends without a word."""


class WorkerError(Exception):
    """A fault of ours in a worker process.

    Args:
        message: one line.
        output: what the process wrote to its error stream, usually a traceback.
    """

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.add_note(output)


def nearest(word: str, known: Iterable[str], others: Mapping[str, str] | None = None) -> str:
    """Return "; did you mean 'x'?" for the known word nearest to `word`, or the known words.

    At most `LISTED` words are listed, with the number of the others. `others` has what else the
    words are called, in small letters, and the word that each is.
    """
    known = sorted(known, key=lambda word: (word.isdigit() and len(word), word))
    others = others or {}
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if not close:
        called = difflib.get_close_matches(word.lower(), others, n=1, cutoff=0.6)
        close = [others[name] for name in called]
    if close:
        return f"; did you mean '{close[0]}'?"
    more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
    return f"; there is: {', '.join(known[:LISTED])}{more}" if known else ""


def item_name(where: str, number: int) -> str:
    """Return what messages call an item of a list: `sizes[1]`; of an option, `--lr`."""
    return where if where.startswith("--") else f"{where}[{number}]"
