"""A terminal that a test can read: a command in a pseudo-terminal, and the screen that it draws."""

from __future__ import annotations

import codecs
import os
import re
import select
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pyte

from tests import forking

PATIENCE = 120.0  # seconds that a command may take on a busy machine


class Terminal:
    """`foreword` run in a window, until it ends or the test leaves the block.

    Args:
        words: the command line, after `foreword`.
        columns: width of the window.
        rows: its height.
        environment: variables beside those of the test.
        is_new_python: whether to start Python for it, rather than to fork.

    Attributes:
        printed: all that was written so far, escape codes too.
        screen: what the window shows, and what was scrolled out of it.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        columns: int = 100,
        rows: int = 30,
        environment: dict[str, str] | None = None,
        is_new_python: bool = False,
    ) -> None:
        self.printed = ""
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self._stream = pyte.Stream(self.screen)
        known = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        known |= {"TERM": "xterm-256color", **(environment or {})}
        self._window, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (rows, columns))
        self._command = forking.start(
            words,
            dict.fromkeys(range(3), theirs),
            has_terminal=True,
            environment=known,
            is_new_python=is_new_python,
        )
        os.close(theirs)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._command.end()
        os.close(self._window)

    def until(self, is_there: Callable[[Terminal], bool]) -> None:
        """Reads until the window shows what is waited for.

        Raises:
            AssertionError: the command ended before, or it takes too long.
        """
        end = time.monotonic() + PATIENCE
        while not is_there(self):
            assert self._read(), f"ended before it showed that:\n{self.text}"
            assert time.monotonic() < end, f"never showed that:\n{self.text}"

    def shows(self, words: str) -> None:
        """Reads until these words are on the screen or were."""
        self.until(lambda _: words in self.text)

    def live_lines(self) -> list[str]:
        """The live line each time that it was drawn, without colours."""
        drawn = re.findall(
            r"\r\x1b\[J(?:[^\r]*\r\n)*([^\r\x1b]*(?:\x1b\[\d*m[^\r\x1b]*)*)\r(?!\n)", self.printed
        )
        return [line for line in (re.sub(r"\x1b\[\d*m", "", one) for one in drawn) if line]

    def orphans(self) -> list[int]:
        """Processes of the command that are there still, when it has ended."""
        processes = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
                if int(session) == self._command.pid and state != "Z":
                    processes.append(int(path.parent.name))
        return processes

    def has_loaded(self, library: str) -> bool:
        """Whether the new Python of the command has loaded a compiled library."""
        process = Path(f"/proc/{self._command.pid}")
        has_begun = b"-m\0foreword" in (process / "cmdline").read_bytes()
        return has_begun and library in (process / "maps").read_text()

    def press_ctrl_c(self) -> None:
        """Interrupts, as the key does."""
        os.write(self._window, b"\x03")

    def resize(self, columns: int, rows: int) -> None:
        """Gives the window another size, and tells the command."""
        termios.tcsetwinsize(self._window, (rows, columns))
        self.screen.resize(rows, columns)

    def wait(self) -> int:
        """Reads to the end; returns the exit status."""
        end = time.monotonic() + PATIENCE
        while self._read():
            assert time.monotonic() < end, f"does not end:\n{self.text}"
        return self._command.wait()

    @property
    def lines(self) -> list[str]:
        """What was scrolled out and what is to be seen, without blanks at the ends."""
        width = self.screen.columns
        gone = ["".join(row[n].data for n in range(width)) for row in self.screen.history.top]
        return [line.rstrip() for line in [*gone, *self.screen.display]]

    @property
    def text(self) -> str:
        """The lines, joined."""
        return "\n".join(self.lines)

    def _read(self) -> bool:
        """Whether there may be more."""
        if not select.select([self._window], [], [], 1.0)[0]:
            return True
        try:
            data = os.read(self._window, 65536)
        except OSError:  # all that had it open have ended
            return False
        text = self._decoder.decode(data)
        self.printed += text
        self._stream.feed(text)
        return True
