"""One live line on the error stream, for a person who watches: what goes on, how far, how long.

    training ━━━━━━━───────────  35%  loss 5.68  33,165 tokens/s  0:07 elapsed, 0:14 left

The cursor rests at the start of the line and stays visible. So a window that gets narrower, whose
terminal folds the line, is cleared by erasing from the cursor on; a `^C` that the terminal shows
moves nothing; and a process that is killed leaves a terminal in which one can go on.
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

SECONDS = 0.2  # between two looks at whether the line has changed
FIRST_LINE, LINES = 5.0, 60.0  # seconds to the first line of a stage without a bar, and to others
SPEED_SECONDS = 60.0  # of the past, that the time left is reckoned by
ERASE = "\r\x1b[J"  # to the start of the line, and all from there to the end of the screen
COLOUR = "\x1b[36m", "\x1b[0m"  # cyan, and back
SHORTEST, LONGEST = 8, 40  # columns of the bar itself

Advance = Callable[..., None]  # takes what is done, what there is to do, and notes


class Bar:
    """The line, from `with` to the end of the block; or lines now and then where nobody watches.

    Args:
        say: prints a line of its own.
        is_live: whether the error stream is a terminal that can erase a line.
        is_coloured: whether it may use colours.

    Attributes:
        is_live: as given.
    """

    def __init__(self, say: Callable[[str], None], *, is_live: bool, is_coloured: bool) -> None:
        self.is_live = is_live
        self._say, self._is_coloured = say, is_coloured
        self._stage: Stage | None = None
        self._due = 0.0  # when the next line is
        self._lock = threading.RLock()  # a signal's handler may print in the middle of a print
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
                self._give_back(*self._streams)
        self._thread.join()

    def _give_back(self, out: IO[str], err: IO[str]) -> None:
        if self._drawn:
            self._drawn = None
            self._file.write(ERASE)
            self._file.flush()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, _Above):
                stream.end()
        sys.stdout, sys.stderr = out, err

    def stage(self, name: str, *, is_said: bool = False, has_lines: bool = True) -> Advance:
        """Begins a stage, in the place of the one before.

        Args:
            name: what goes on.
            is_said: where there is no bar, whether a line says so at once.
            has_lines: where there is no bar, whether lines now and then say how far it is.

        Returns:
            A function that takes what is done, what there is to do, and notes of which the first
            are worth most.
        """
        stage = Stage(name)
        with self._lock:
            self._stage = stage if self.is_live or has_lines else None
            self._due = stage.began + (LINES if is_said else FIRST_LINE)
            if self.is_live:
                self._draw()
            elif is_said:
                self._say(name)
        return stage.advance

    def _keep_drawing(self) -> None:
        while not self._is_over.wait(SECONDS):
            with self._lock:
                if self._is_over.is_set():
                    return
                try:
                    if self.is_live:
                        self._draw()
                    else:
                        self._say_line(time.monotonic())
                except (OSError, ValueError):  # the terminal is gone; the work is not
                    return

    def _say_line(self, now: float) -> None:
        if self._stage is not None and now >= self._due:
            self._due = now + LINES
            self._say(self._stage.line(1 << 16, now))

    def above(self, file: IO[str], text: str) -> None:
        """Writes whole lines where the bar was, and the bar below them, at once."""
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
        """The width of the window, and what is to be seen now."""
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
        """Whether the shell has not put the process into the background."""
        try:
            return os.tcgetpgrp(self._file.fileno()) == os.getpgrp()
        except (OSError, ValueError, AttributeError):
            return True

    def _draw_bar(self, filled: int, size: int) -> str:
        done, left = self._characters()
        start, end = COLOUR if self._is_coloured else ("", "")
        return f"{start}{done * filled}{end}{left * (size - filled)}"

    def _characters(self) -> tuple[str, str]:
        """What the bar is drawn with, if the stream can write it: what is done, what is left."""
        done, left = "━", "─"
        try:
            done.encode(self._file.encoding or "ascii")
        except UnicodeEncodeError:
            done, left = "#", "-"
        return done, left


class Stage:
    """How far one stage is.

    Args:
        name: what goes on.
        began: on the monotonic clock; now, if unsaid.
    """

    def __init__(self, name: str, began: float | None = None) -> None:
        self.name = name
        self.began = time.monotonic() if began is None else began
        self._total = 0.0
        self._notes: tuple[str, ...] = ()
        self._last = (self.began, 0.0)  # a moment, and what was done by then
        self._past: deque[tuple[float, float]] = deque()  # such of the past, a second apart

    def advance(self, done: float, total: float, *notes: str) -> None:
        """Takes what is done, what there is to do in all (0 if unknown), and notes."""
        now = time.monotonic()
        self._last, self._total, self._notes = (now, done), total, notes
        past = self._past
        if not past or now > past[-1][0] + 1:
            past.append((now, done))
            while len(past) > 2 and now > past[1][0] + SPEED_SECONDS:
                past.popleft()

    def line(self, room: int, now: float, bar: Callable[[int, int], str] | None = None) -> str:
        """The line in so many columns; where they are few, what matters least is left out.

        Args:
            room: the columns.
            now: on the monotonic clock.
            bar: draws a bar of so many columns filled, of so many in all.
        """
        notes = [note for note in self._notes if note]
        elapsed, left = clock(now - self.began), self._left(now)
        if not self._total:
            parts = [self.name, *notes, f"{elapsed} elapsed"]
            if cell_len(f"{self.name}  {parts[-1]}") > room:
                parts[-1] = elapsed
            return fitted(parts, [0, *range(2, 2 + len(notes)), 1], room)
        share = min(max(self._last[1] / self._total, 0.0), 1.0)
        said = f"{elapsed} elapsed" + ("" if left is None else f", {clock(left)} left")
        parts = [self.name, f"{share:4.0%}", *notes, said]
        ranks = [0, 1, *range(3, 3 + len(notes)), 2]
        if (
            left is not None
            and cell_len("  ".join([*parts[: 2 + bool(notes)], said])) + SHORTEST + 1 > room
        ):
            parts[-1] = f"{clock(left)} left"  # elapsed makes way for the bar and the first note
        line = fitted(parts, ranks, room)
        size = min(room - cell_len(line) - 1, LONGEST)
        if bar is None or size < SHORTEST:
            return line
        return f"{self.name} {bar(round(share * size), size)}{line[len(self.name) :]}"

    def _left(self, now: float) -> float | None:
        """Seconds, at the speed of the past minute; None where that is not known yet."""
        if not self._past:
            return None
        (then, before), (last, done) = self._past[0], self._last
        if done <= before or last < then + 1:  # of a burst no speed can be told
            return None
        speed = (done - before) / (last - then)
        return max((self._total - done) / speed - (now - last), 0.0)


def fitted(parts: Sequence[str], ranks: Sequence[int], room: int) -> str:
    """Parts on one line with two spaces between; those of the highest ranks go where room lacks.

    What is of rank 0 is cut at last.
    """
    kept = sorted(range(len(parts)), key=lambda n: ranks[n])
    while len(kept) > 1 and sum(cell_len(parts[n]) + 2 for n in kept) - 2 > room:
        kept.pop()
    line = "  ".join(parts[n] for n in sorted(kept))
    return line if cell_len(line) <= room else set_cell_size(line, max(room - 1, 0)) + "…"


def clock(seconds: float) -> str:
    """Minutes and seconds, and hours where there are any: `2:03`, `1:02:03`."""
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class _Above:
    """A stream while a bar is shown: its lines go above the bar when they are whole.

    Args:
        bar: the bar.
        file: the stream itself.
    """

    def __init__(self, bar: Bar, file: IO[str]) -> None:
        self._bar, self._file, self._begun = bar, file, ""

    def write(self, text: str) -> int:
        """Takes text; what ends no line waits."""
        whole, end, rest = text.rpartition("\n")
        if end:
            whole, self._begun = self._begun + whole + end, ""
            self._bar.above(self._file, whole)
        self._begun += rest
        return len(text)

    def flush(self) -> None:
        """Does nothing: whole lines are out already."""

    def end(self) -> None:
        """Writes what was begun of a line."""
        if self._begun:
            self._bar.above(self._file, self._begun)
            self._begun = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
