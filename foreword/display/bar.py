"""A live progress line on the error stream: the stage, how far it is, and the time left.

    training ━━━━━━━───────────  35%  loss 5.68  33,165 tokens/s  7 s of about 21 s

The cursor rests at the start of the line and stays visible. So if the window gets narrower and the
terminal wraps the line, erasing from the cursor on clears it; a `^C` that the terminal echoes moves
nothing; and a process that is killed leaves a usable terminal.

rich's own live line hides the cursor, leaves pieces when it was wrapped, and sends standard output
to the error stream.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import IO, Any

from rich.cells import cell_len, set_cell_size

from foreword.formatting import duration, rough

SECONDS = 0.2  # between two checks whether the line has changed
FIRST_LINE, LINES = 5.0, 60.0  # seconds to the first line of a stage without a bar, and to others
SPEED_SECONDS = 60.0  # of the past, from which the time left is estimated
ERASE = "\r\x1b[J"  # to the start of the line, and all from there to the end of the screen
COLOUR = "\x1b[36m", "\x1b[0m"  # cyan, and back
SHORTEST, LONGEST = 8, 40  # columns of the bar itself

Advance = Callable[..., None]  # (done, total, *notes)


class Bar:
    """The live line of a `with` block; outside a terminal, a printed line now and then.

    Args:
        say: prints a separate line.
        is_live: whether the error stream is a terminal that can erase a line.
        is_coloured: whether it may use colours.

    Attributes:
        is_live: as given.
    """

    def __init__(self, say: Callable[[str], None], *, is_live: bool, is_coloured: bool) -> None:
        self.is_live = is_live
        self._say, self._is_coloured = say, is_coloured
        self._stage: Stage | None = None
        self._stages: dict[str, Stage] = {}
        self._due = 0.0  # when the next line is
        self._lock = threading.RLock()  # what is left at the end is written above the bar
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._keep_drawing, daemon=True)
        self._drawn: tuple[int, str] | None = None
        self._streams: tuple[IO[str], IO[str]] | None = None

    def __enter__(self) -> Bar:
        if self.is_live:
            self._streams = sys.stdout, sys.stderr
            self._file = sys.stderr
            sys.stderr = _Above(self, sys.stderr)
            if sys.stdout.isatty():
                sys.stdout = _Above(self, sys.stdout)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._is_over.set()
        with self._lock:
            self._stage = None
            if self._streams is not None:
                self._restore(*self._streams)
        self._thread.join()

    def _restore(self, out: IO[str], err: IO[str]) -> None:
        if self._drawn:
            self._drawn = None
            self._file.write(ERASE)
            self._file.flush()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, _Above):
                stream.end()
        sys.stdout, sys.stderr = out, err

    def stage(
        self,
        name: str,
        *,
        is_announced: bool = False,
        has_lines: bool = True,
        continues: bool = False,
        is_brief: bool = False,
    ) -> Advance:
        """Begin a stage, which replaces the previous one.

        Args:
            name: the name of the stage.
            is_announced: without a live line, whether to print the name at once.
            has_lines: without a live line, whether to print the progress now and then.
            continues: whether to continue an earlier stage of this name, its time included.
            is_brief: whether to show the stage only if it lasts a moment, so that nothing flickers.

        Returns:
            A function that takes what is done, the total, and notes, the most important first.
        """
        known = self._stages.get(name) if continues else None
        stage = self._stages[name] = known or Stage(name)
        with self._lock:
            self._stage = stage if self.is_live or has_lines else None
            self._due = time.monotonic() + (LINES if is_announced else FIRST_LINE)
            if self.is_live:
                if not is_brief:
                    self._draw()
            elif known is None and is_announced:
                self._say(name)
        return stage.advance

    def _keep_drawing(self) -> None:
        while not self._is_over.wait(SECONDS):
            with self._lock:
                if self._is_over.is_set():
                    return
                if self.is_live:
                    self._draw()
                else:
                    self._say_line(time.monotonic())

    def _say_line(self, now: float) -> None:
        if self._stage is not None and now >= self._due:
            self._due = now + LINES
            self._say(self._stage.line(1 << 16, now))

    def above(self, file: IO[str], text: str) -> None:
        """Write whole lines in place of the bar, and the bar below them, in one write."""
        with self._lock:
            width, line = self._line()
            erase = ERASE if self._drawn else ""
            self._drawn = (width, line) if line else None
            file.write(f"{erase}{text}{line}\r" if line else erase + text)
            file.flush()

    def _draw(self) -> None:
        if (drawn := self._line()) != self._drawn and drawn[1]:
            self._drawn = drawn
            self._file.write(f"{ERASE}{drawn[1]}\r")
            self._file.flush()

    def _line(self) -> tuple[int, str]:
        """Return the width of the window, and the line to show now."""
        width = self._width()
        if self._stage is None or not self._is_in_front():
            return width, ""
        return width, self._stage.line(width - 1, time.monotonic(), self._draw_bar)

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._file.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _is_in_front(self) -> bool:
        """Return whether the process is in the foreground of its terminal."""
        try:
            return os.tcgetpgrp(self._file.fileno()) == os.getpgrp()
        except (OSError, ValueError, AttributeError):
            return True

    def _draw_bar(self, filled: int, size: int) -> str:
        done, left = self._characters()
        start, end = COLOUR if self._is_coloured else ("", "")
        return f"{start}{done * filled}{end}{left * (size - filled)}"

    def _characters(self) -> tuple[str, str]:
        """Return the characters for what is done and what is left that the stream can encode."""
        done, left = "━", "─"
        try:
            done.encode(self._file.encoding or "ascii")
        except UnicodeEncodeError:
            done, left = "#", "-"
        return done, left


class Stage:
    """The progress of one stage.

    Args:
        name: the name of the stage.
        began: when, on the monotonic clock; default: now.
    """

    def __init__(self, name: str, began: float | None = None) -> None:
        self.name = name
        self.began = time.monotonic() if began is None else began
        self._total = 0.0
        self._notes: tuple[str, ...] = ()
        self._last = (self.began, 0.0)  # a time, and what was done by then
        self._past: deque[tuple[float, float]] = deque()  # earlier such pairs, a second apart

    def advance(self, done: float, total: float, *notes: str) -> None:
        """Record what is done, the total (0 if unknown), and notes."""
        now = time.monotonic()
        self._last, self._total, self._notes = (now, done), total, notes
        past = self._past
        if not past or now > past[-1][0] + 1:
            past.append((now, done))
            while len(past) > 2 and now > past[1][0] + SPEED_SECONDS:
                past.popleft()

    def line(self, room: int, now: float, bar: Callable[[int, int], str] | None = None) -> str:
        """Return the line for a window; in a narrow one, the least important parts are left out.

        Args:
            room: number of columns.
            now: the time on the monotonic clock.
            bar: returns a bar, given its filled columns and all its columns.
        """
        notes = [note for note in self._notes if note]
        elapsed, left = now - self.began, self._left(now)
        if not self._total:
            parts = [self.name, *notes, duration(elapsed)]
            return fit_parts(parts, [0, *range(2, 2 + len(notes)), 1], room)
        share = min(max(self._last[1] / self._total, 0.0), 1.0)
        times = duration(elapsed) + ("" if left is None else f" of about {rough(elapsed + left)}")
        parts = [self.name, f"{share:4.0%}", *notes, times]
        ranks = [0, 1, *range(3, 3 + len(notes)), 2]
        if (
            left is not None
            and cell_len("  ".join([*parts[: 2 + bool(notes)], times])) + SHORTEST + 1 > room
        ):
            parts[-1] = f"{rough(left)} left"  # elapsed makes way for the bar and the first note
        line = fit_parts(parts, ranks, room)
        size = min(room - cell_len(line) - 1, LONGEST)
        if bar is None or size < SHORTEST:
            return line
        return f"{self.name} {bar(round(share * size), size)}{line[len(self.name) :]}"

    def _left(self, now: float) -> float | None:
        """Return the seconds left at the speed of the past minute; None if not known yet."""
        if not self._past:
            return None
        (then, before), (last, done) = self._past[0], self._last
        if done <= before or last < then + 1:  # a burst tells no speed
            return None
        speed = (done - before) / (last - then)
        return max((self._total - done) / speed - (now - last), 0.0)


def fit_parts(parts: Sequence[str], ranks: Sequence[int], room: int) -> str:
    """Return the parts on one line, two spaces apart, without those of the highest ranks.

    As many are left out as the room requires; a single part that is left is cut.
    """
    chosen = sorted(range(len(parts)), key=lambda n: ranks[n])
    while len(chosen) > 1 and sum(cell_len(parts[n]) + 2 for n in chosen) - 2 > room:
        chosen.pop()
    line = "  ".join(parts[n] for n in sorted(chosen))
    return line if cell_len(line) <= room else set_cell_size(line, max(room - 1, 0)) + "…"


class _Above:
    """A stream while a bar is shown: whole lines are written above the bar.

    Args:
        bar: the bar.
        file: the stream itself.
    """

    def __init__(self, bar: Bar, file: IO[str]) -> None:
        self._bar, self._file, self._unfinished = bar, file, ""

    def write(self, text: str) -> int:
        """Write the whole lines of a text, and hold back an unfinished one."""
        whole, end, rest = text.rpartition("\n")
        if end:
            whole, self._unfinished = self._unfinished + whole + end, ""
            self._bar.above(self._file, whole)
        self._unfinished += rest
        return len(text)

    def flush(self) -> None:
        """Do nothing: whole lines are written already."""

    def end(self) -> None:
        """Write the unfinished line."""
        if self._unfinished:
            self._bar.above(self._file, self._unfinished)
            self._unfinished = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
