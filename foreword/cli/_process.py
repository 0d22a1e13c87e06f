"""Settings of the whole process for the libraries under torch, made before torch is imported.

They change the process, so the command line makes them and `import foreword` does not.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from foreword.cli._streams import ReaderGoneError
from foreword.errors import INTERRUPTED as INTERRUPTED
from foreword.errors import UserError
from foreword.process import allocator, signals

PEER_ENDED = 3  # the exit status of a process that ends since another of its training has


def configure_process() -> None:
    """Make waiting threads yield, keep memory that a step frees, and protect child processes.

    Threads that wait for each other by spinning (OpenMP's default) slow a run down many times over
    when another process needs a core. By glibc's default, large blocks go back to the system when
    they are freed, and each step pays for their pages again.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # Processes that Python or torch start (`python -c ...`, `python -m ...`) would look for modules
    # in the current folder first, and run a `socket.py` among the user's texts.
    os.environ["PYTHONSAFEPATH"] = "1"
    allocator.keep_freed()


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Treat SIGTERM and a closed terminal like Ctrl-C in every verb: nothing is left half done.

    Native code may turn the interrupt into an error of its own, as libraries do that are just being
    imported. That is an interrupt too.
    """
    is_interrupted = False

    def interrupt(number: signal.Signals) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        raise KeyboardInterrupt

    with signals.handled(interrupt):
        try:
            yield
        except Exception as error:
            if is_interrupted:
                raise KeyboardInterrupt from error
            raise


def leave(status: int) -> NoReturn:
    """End the process, with its output written; at once, if it was interrupted.

    Native code in a thread that was abandoned, such as a tokenizer's trainer, asks for the
    interpreter when it is done, and aborts a process that is taking its interpreter down. And an
    interrupt that came out of `exec`, as in an import, makes `python -m` end by SIGINT after all.
    """
    if not signals.is_ignored(signal.SIGINT):
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is done; another Ctrl-C ends it at once
    for stream in (sys.stdout, sys.stderr):
        with suppress(ReaderGoneError, UserError):  # the status is known already
            stream.flush()
    if status == INTERRUPTED:
        os._exit(status)
    sys.exit(status)
