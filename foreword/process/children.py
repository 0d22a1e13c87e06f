"""Processes of this machine that call functions for this one, beside each other.

    with Children(4) as children:
        future = children.submit(function, argument)

They run no script of the caller again, as those of `multiprocessing` do, so it needs no guard; they
end with this process, however it ends, and one that dies fails its own call alone. `-P` keeps the
current folder off their path, so a `numpy.py` beside the texts is not imported.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from foreword.errors import UserError, WorkerError, is_out_of_memory
from foreword.process.cluster import Cluster, Resources, cores


class Children:
    """As many child processes as were asked for, which share the cores and the GPUs.

    Args:
        count: of the processes; each begins with its first call.
        option: that the user asks for fewer with.
    """

    def __init__(self, count: int, option: str) -> None:
        self._option = option
        self._share = max(1, cores() // count)
        self._free: SimpleQueue[_Child | None] = SimpleQueue()
        for _ in range(count):
            self._free.put(None)
        self._busy = set[_Child]()
        self._is_closing = False
        self._threads = ThreadPoolExecutor(count)

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *error: object) -> None:
        """Ask what runs to stop, as SIGTERM does, and end all when it has."""
        self._is_closing = True
        for child in tuple(self._busy):
            child.stop()
        self._threads.shutdown(cancel_futures=True)
        while not self._free.empty():
            if (idle := self._free.get()) is not None:
                idle.close()

    def machines(self) -> list[Resources]:
        """Return what a task may take: it is not counted here."""
        return [Resources(float("inf"), float("inf"))]

    def submit(
        self, function: Callable[..., Any], *args: Any, resources: Resources | None = None
    ) -> Future[Any]:
        """Call a function of a module in a child that is free, or the next to be.

        Args:
            function: the function.
            args: its arguments.
            resources: what it takes, which is not counted.

        Returns:
            Its result; or a UserError that it raised, or that its process died; or a WorkerError.
        """
        return self._threads.submit(self._call, function, args)

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        free = self._free.get()
        try:
            free = child = free or _Child(self._share)
            self._busy.add(child)
            if self._is_closing:
                child.stop()
            try:
                return child.call(f"{function.__module__}:{function.__qualname__}", args)
            except EOFError:
                free = None
                raise child.death(self._option) from None
            finally:
                self._busy.discard(child)
        finally:
            self._free.put(free)  # also where no process can be made


Pool = Cluster | Children  # what tasks are submitted to


class _Child:
    """A child process.

    Args:
        share: cores that it computes with.
    """

    def __init__(self, share: int) -> None:
        self._connection, remote = Pipe()
        number = str(remote.fileno())
        code = f"from {__name__} import serve; serve({number})"
        root = str(Path(__file__).parents[2])  # the caller may have found it in its current folder
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), root]),
            "OMP_NUM_THREADS": str(share),
            "TOKENIZERS_PARALLELISM": "false",
        }
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (not the user's screen)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=environment,
            pass_fds=(remote.fileno(),),
            process_group=0,  # the caller alone decides what a signal to all of its group means
        )
        remote.close()

    def call(self, name: str, args: tuple[Any, ...]) -> Any:
        """Return the result of a function, or raise its error; EOFError if the process dies."""
        try:
            self._connection.send((name, args))
            error, result = self._connection.recv()
        except (EOFError, ConnectionError):
            raise EOFError from None
        if error is not None:
            raise error if isinstance(error, UserError) else WorkerError(*error)
        return result

    def death(self, option: str) -> Exception:
        """Return the error that says how the process died."""
        status = self._process.wait()
        self._output.seek(0)
        output = self._output.read().decode(errors="replace").strip()
        self.close()
        last = output.rpartition("\n")[2]
        if status > 0 and output and "MemoryError" not in last:
            return WorkerError(f"a worker process failed: {last}", output)
        number = status if status >= 0 else 128 - status
        return UserError(
            f"a worker process died (status {number}), probably out of memory; use fewer: {option}"
        )

    def stop(self) -> None:
        """Ask what runs to stop: a training saves what it has, anything else ends at once."""
        self._process.terminate()

    def close(self) -> None:
        """End the process, which calls nothing."""
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._output.close()


def serve(number: int) -> None:
    """Call what comes over the connection with this file descriptor, until its process ends."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    connection = Connection(number)
    with suppress(EOFError, ConnectionError):
        while True:
            name, args = connection.recv()
            connection.send(_outcome(name, args))


def _watch(parent: int) -> None:
    """Ask this process to end once another than its parent has it."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


def _outcome(name: str, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return no error and the result of a function; or its error, or the words that tell it."""
    module, _, function = name.partition(":")
    try:
        return None, getattr(importlib.import_module(module), function)(*args)
    except UserError as error:
        return error, None
    except Exception as error:
        if is_out_of_memory(error):
            return UserError(f"a worker process is out of memory: {error}"), None
        line = f"a worker process failed: {error!r}"
        return (line, traceback.format_exc()), None
