"""Commands in processes of their own, forked from one that has imported their libraries.

Python takes seconds to import torch, and a fork takes milliseconds. The process that forks imports
the libraries and the rooms under the command line; each command then runs `foreword.__main__`, the
entry point, with the words, streams, terminal, folder and environment that it was given, and
imports the command line anew, which looks at them. What Python itself reads from the environment
as it starts, such as the encoding of the streams, is that of the tests.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import gc
import io
import json
import os
import pkgutil
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fcntl import ioctl
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

from tests import shelf

LARGEST = 1 << 20  # bytes of an order
# Libraries that others import as they are used.
IMPORTED_LATE = (
    "pydantic.type_adapter",
    "scipy.stats",
    "tabulate",
    "torch._dynamo",
    "torch.profiler._cupti_monitor",
    "typer._adapters",
    "typer.core",
)
LEFT_OUT = ("__main__", "api", "cli", "demo", "display", "interop", "testing", "trackers", "verbs")


class Command:
    """A command that was started.

    Args:
        answers: where its id is to be read, and its status once it has ended.

    Attributes:
        pid: its process.
        peak: once it has ended, the most memory that it had, in bytes.
    """

    def __init__(self, answers: IO[str]) -> None:
        self._answers = answers
        self.pid = int(answers.readline())
        self.peak = 0
        self._status: int | None = None

    def wait(self) -> int:
        """Return its exit status; negative for a signal."""
        if self._status is None:
            with self._answers:
                self._status, self.peak = map(int, self._answers.readline().split())
        return self._status

    def end(self) -> int:
        """Kill it unless it has ended, and return its status."""
        if self._status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        return self.wait()


def start(
    words: Sequence[str],
    streams: Mapping[int, int],
    *,
    has_terminal: bool = False,
    environment: Mapping[str, str] | None = None,
    largest_file: int = 0,
    is_new_python: bool = False,
    module: str = "foreword",
) -> Command:
    """Start a command.

    Args:
        words: after `foreword`.
        streams: what its standard input (0), output (1) and errors (2) are; others are closed.
        has_terminal: whether these are a terminal, which it is to have for itself.
        environment: its variables; by default those of this process.
        largest_file: bytes that a file may have, as on a disk that is full; 0 for any.
        is_new_python: whether to start Python for it, which takes seconds.
        module: another program to run, as `python -m` does, or its file.
    """
    order = {
        "words": list(words),
        "streams": list(streams),
        "has_terminal": has_terminal,
        "environment": dict(os.environ if environment is None else environment),
        "largest_file": largest_file,
        "is_new_python": is_new_python,
        "module": module,
        "folder": str(Path.cwd()),
    }
    read, write = os.pipe()
    socket.send_fds(_server(), [json.dumps(order).encode()], [write, *streams.values()])
    os.close(write)
    return Command(os.fdopen(read))


def start_into(words: Sequence[str], output: Path, **options: Any) -> Command:
    """Start a command that appends all that it prints to a file."""
    with output.open("a") as file, Path(os.devnull).open() as null:
        streams = {0: null.fileno(), 1: file.fileno(), 2: file.fileno()}
        return start(words, streams, **options)


def run(words: Sequence[str], output: Path, **options: Any) -> int:
    """Run a command that appends all that it prints to a file, and return its status."""
    return start_into(words, output, **options).wait()


def wait_until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until a condition holds, at most `seconds`."""
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.002)


@functools.cache
def _server() -> socket.socket:
    """Return a connection to the process that forks: one a session, started by the first to ask."""
    address = Path(os.environ[shelf.FOLDER], "forking")
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with address.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            ours.connect(str(address))
        except OSError:  # there is none yet, or none any more
            address.unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as waiting:
                waiting.bind(str(address))
                waiting.listen()
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.forking", str(waiting.fileno())],
                    pass_fds=[waiting.fileno()],
                    stdin=subprocess.DEVNULL,
                    cwd=Path(__file__).parents[1],
                )
                atexit.register(process.poll)  # it ends when all who are connected have
                ours.connect(str(address))
    return ours


def serve(waiting: socket.socket) -> None:
    """Start the commands that are ordered, until all who ordered some have ended."""
    import_libraries()
    sockets = [waiting]
    while True:
        for orders in select.select(sockets, [], [])[0]:
            if orders is waiting:
                sockets.append(waiting.accept()[0])
                continue
            message, files, _, _ = socket.recv_fds(orders, LARGEST, 4)
            if message:
                begin(json.loads(message), files, sockets)
            else:
                sockets.remove(orders)
        if sockets == [waiting] and not select.select(sockets, [], [], 0)[0]:
            return


def begin(order: dict[str, Any], files: Sequence[int], sockets: Sequence[socket.socket]) -> None:
    """Start a command, and a process that waits for its end."""
    if not os.fork():
        for one in sockets:
            one.close()
        if not (command := os.fork()):
            become(order, files)
            run_and_leave(order["module"], order["words"])
        watch(command, files)
    for file in files:
        os.close(file)
    while any_ended():
        pass


def any_ended() -> bool:
    """Return whether a child had ended, which is none now."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def watch(command: int, files: Sequence[int]) -> None:
    """Write the id of a command and, when it has ended, its status and peak; then end."""
    for file in files[1:]:
        os.close(file)
    os.write(files[0], f"{command}\n".encode())
    _, status, used = os.wait4(command, 0)
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    os.write(files[0], f"{os.waitstatus_to_exitcode(status)} {peak}\n".encode())
    os._exit(0)


def import_libraries() -> None:
    """Import what takes long, except for the command line and what shows its progress."""
    import torch

    import foreword
    from foreword.planning import estimate
    from foreword.runs import hooks

    torch.set_num_threads(1)
    for name in IMPORTED_LATE:
        with suppress(ImportError):
            import_module(name)
    for room in pkgutil.iter_modules(foreword.__path__, "foreword."):
        if room.name.partition(".")[2] not in LEFT_OUT:
            folder = import_module(room.name)
            for module in pkgutil.walk_packages(getattr(folder, "__path__", ()), f"{room.name}."):
                import_module(module.name)
    assert not {"foreword.cli", "foreword.display"} & sys.modules.keys()
    hooks.matmul_flops_per_second = lambda *_: 1e9  # takes long to measure
    estimate.TIMED_SECONDS = 0.0
    os.fsync = lambda fd: None  # as in `tests/conftest.py`
    gc.freeze()  # the collector of each command would go through it all


def become(order: dict[str, Any], files: Sequence[int]) -> None:
    """Take over what an order gives: streams, terminal, environment, folder and words."""
    given = dict(zip(order["streams"], files[1:], strict=True))
    for number in range(3):
        if number in given:
            os.dup2(given[number], number)
        else:
            os.close(number)
    for file in files:
        os.close(file)
    if order["has_terminal"]:
        os.setsid()
        ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored if the tests run under `nohup`
    if order["largest_file"]:
        sys.dont_write_bytecode = True  # Python keeps what it could write of a compiled module
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest_file"],) * 2)
    if order["is_new_python"]:
        python = [sys.executable, "-m", order["module"], *order["words"]]
        os.execve(sys.executable, python, order["environment"])
    sys.stdin, sys.stdout, sys.stderr = map(_opened, range(3))


def run_and_leave(module: str, words: Sequence[str]) -> NoReturn:
    """Run the command and end as Python does, but for the slow taking down of all its modules."""
    sys.argv = [module, *words]
    status = 0
    try:
        if module.endswith(".py"):
            sys.path.insert(0, str(Path(module).parent))
            runpy.run_path(module, run_name="__main__")
        else:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as left:
        status = int(left.code or 0)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            status = 120
    os._exit(status)


def _opened(number: int) -> Any:
    """Return a standard stream, made as Python makes it; None for one that is closed."""
    try:
        os.fstat(number)
    except OSError:
        return None
    is_raw = bool(os.environ.get("PYTHONUNBUFFERED")) and number > 0
    file = open(number, "wb" if number else "rb", 0 if is_raw else -1, closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(
        file,
        encoding="utf-8",
        errors="backslashreplace" if number == 2 else "strict",
        line_buffering=number == 2 or os.isatty(number),
        write_through=is_raw,
    )


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with socket.socket(fileno=int(sys.argv[1])) as waiting:
        serve(waiting)
