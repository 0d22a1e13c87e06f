"""Ctrl-C and SIGTERM while a model trains."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from foreword.train.loop import Loop


@contextmanager
def stops_on_signals(loop: Loop) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM end the loop after its step; a second one leaves at once.

    Elsewhere than in the main thread, where Python allows no handlers, signals do what they did.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if loop.is_stopping:
            raise KeyboardInterrupt
        loop.stop()
        loop.note("stopping: the step is finished and saved first")

    old: dict[signal.Signals, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        old[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
