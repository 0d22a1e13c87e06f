"""Ctrl-C, SIGTERM and a closed terminal while a model trains."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from foreword.errors import UserError
from foreword.process import signals
from foreword.train import processes
from foreword.train.joining import comes_from_others
from foreword.train.loop import STOPPING, Loop


@contextmanager
def stops_on_signals(loop: Loop) -> Iterator[None]:
    """Let the first signal end the loop after its step; a second Ctrl-C or SIGTERM leaves at once.

    A closed terminal may send SIGHUP several times, so that one never leaves at once. Neither does
    the first that this process gets if another had one before and all stop already.

    Raises:
        UserError: a signal came, and another process had ended, so the step cannot be finished.
    """
    # A thread prints the message, since a handler may interrupt a print. The queue is reentrant.
    requests: SimpleQueue[bool] = SimpleQueue()
    is_asked = False

    def announce() -> None:
        if requests.get() and processes.count() == 1:  # several have to agree first
            loop.warn(STOPPING)

    def stop(number: signal.Signals) -> None:
        nonlocal is_asked
        if not is_asked:
            is_asked = True
            loop.stop()
            requests.put(True)
        elif number in (signal.SIGINT, signal.SIGTERM):
            raise KeyboardInterrupt

    announcer = threading.Thread(target=announce, daemon=True)
    announcer.start()
    try:
        with signals.handled(stop):
            yield
    except RuntimeError as error:
        if loop.is_stopping and comes_from_others(error):
            raise UserError(
                "stopped, but not saved: another process had ended; 'foreword resume' continues "
                "from the last checkpoint"
            ) from error
        raise
    finally:
        requests.put(False)
        announcer.join()
