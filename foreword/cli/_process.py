"""What this process asks of the libraries under torch, before torch is imported.

All settings are of the whole process, so the command line makes them and `import foreword` does
not.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # of glibc's malloc.h


def settle() -> None:
    """Makes waiting threads give way, keeps memory that a step frees, and guards child processes.

    Threads that wait for each other by spinning (OpenMP's default) slow a run down many times over
    when anything else wants a core. Large blocks, by glibc's default, go back to the system when
    they are freed, and each step pays for their pages again.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # Processes that Python or torch start (`python -c ...`, `python -m ...`) would first look for
    # modules in the current folder, where a `socket.py` beside somebody's texts would be run.
    os.environ["PYTHONSAFEPATH"] = "1"
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(M_MMAP_THRESHOLD, 1 << 30)
            mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
            mallopt(M_TOP_PAD, 64 << 20)


@contextmanager
def terminated() -> Iterator[None]:
    """SIGTERM is like Ctrl-C in every verb, so that nothing half done is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
