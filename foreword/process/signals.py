"""The signals that ask a process to end: Ctrl-C, SIGTERM, and SIGHUP when a terminal is closed.

A signal that is ignored when the process starts stays ignored, such as SIGHUP under `nohup`, or
Ctrl-C in the background of a script.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

TOGETHER = 1.0  # seconds: `timeout` and shells signal a process and its group, so it comes twice
ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@contextmanager
def handled(handler: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Call `handler` for each signal that asks to end, once for signals that come together.

    Outside the main thread, where Python allows no handlers, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last = -math.inf

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now > last + TOGETHER:
            last = now
            handler(signal.Signals(number))

    before: dict[signal.Signals, Any] = {
        number: signal.signal(number, handle) for number in ENDING if not is_ignored(number)
    }
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)  # None: not Python's


def is_ignored(number: signal.Signals) -> bool:
    """Return whether the process ignores a signal."""
    return signal.getsignal(number) is signal.SIG_IGN
