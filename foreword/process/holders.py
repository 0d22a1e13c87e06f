"""Which process holds a lock on a file, as Linux tells it, and a signal to that process alone."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def holder_of(lock: Path) -> int | None:
    """Return the process that has locked a file by `flock`; None if none of this user's has.

    It is read from what the kernel says of each process's open files, so that no number in a file,
    perhaps that of another machine or of a process long gone, is ever taken for it.
    """
    try:
        wanted = lock.stat()
    except OSError:
        return None
    for opened in PROC.glob("[0-9]*/fd/*"):
        with suppress(OSError):  # another user's, or one that has just ended
            found, (process, _, number) = opened.stat(), opened.parts[-3:]
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                # Its children inherit the open file, and the lock names who took it.
                about = (PROC / process / "fdinfo" / number).read_text()
                if re.search(rf"^lock:.*FLOCK .* WRITE {process} ", about, re.M):
                    return int(process)
    return None


def end_holder(lock: Path) -> bool:
    """Ask the process that holds a lock to end, as Ctrl-C does; return whether there was one.

    SIGTERM is sent, since shells start processes in the background with Ctrl-C ignored. Between
    looking and sending the process cannot become another one: it is held by a descriptor.
    """
    process = holder_of(lock)
    if process is None:
        return False
    try:
        held = os.pidfd_open(process)
    except OSError:
        return False
    try:
        if holder_of(lock) != process:
            return False
        signal.pidfd_send_signal(held, signal.SIGTERM)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(held)
