"""The end of a process that a launcher started, from a thread: known without torch."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import NoReturn

LAUNCHER_GONE = "the launcher of the processes is gone"

_ending = threading.Lock()  # never released: one thread tells and ends the process


def watch_launcher(interval: float = 1.0) -> None:
    """End this process if the launcher that started it ends first, even while it imports.

    A process that no launcher started is not watched.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(interval)
        end(LAUNCHER_GONE if os.environ.get("LOCAL_RANK") == "0" else "")

    threading.Thread(target=watch, name="foreword-launcher", daemon=True).start()


def end(why: str) -> NoReturn:
    """End this process at once, with status 2.

    Args:
        why: the line that says so; empty if another process says it.
    """
    _ending.acquire()
    if why:
        sys.stderr.write(f"foreword: {why}\n")
        sys.stderr.flush()
    os._exit(2)
