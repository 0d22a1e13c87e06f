"""Settings of the whole process for the libraries under torch, made before torch is imported.

They change the process, so the command line makes them and `import foreword` does not.
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
    """Make waiting threads yield, keep memory that a step frees, and protect child processes.

    Threads that wait for each other by spinning (OpenMP's default) slow a run down many times over
    when another process needs a core. By glibc's default, large blocks go back to the system when
    they are freed, and each step pays for their pages again.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # Processes that Python or torch start (`python -c ...`, `python -m ...`) would look for modules
    # in the current folder first, and run a `socket.py` that lies beside somebody's texts.
    os.environ["PYTHONSAFEPATH"] = "1"
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(M_MMAP_THRESHOLD, 1 << 30)
            mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
            mallopt(M_TOP_PAD, 64 << 20)


@contextmanager
def terminated() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C in every verb, so that nothing is left half done."""
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
