"""Commands in processes that tests kill, forked from one that has imported everything.

Run as a program it reads a command a line, forks a child that runs it, and writes the child's id
and then its status.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


class Commands:
    """A server that runs one command at a time."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.train.forking"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert self._line() == "ready"

    def start(self, words: list[str], output: Path, largest_file: int = 0) -> int:
        """Start a command and return the id of its process.

        Args:
            words: after `foreword`.
            output: gets all that it prints.
            largest_file: bytes that a file may have, as on a disk that is full; 0 for any.
        """
        assert self._server.stdin is not None
        order = {"words": words, "output": str(output), "largest_file": largest_file}
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        return int(self._line())

    def wait(self) -> int:
        """Return the status of the command started last; negative for a signal."""
        return int(self._line())

    def run(self, words: list[str], output: Path, largest_file: int = 0) -> int:
        """Run a command and return its status."""
        self.start(words, output, largest_file)
        return self.wait()

    def close(self) -> None:
        """End the server."""
        self._server.communicate()

    def _line(self) -> str:
        assert self._server.stdout is not None
        return self._server.stdout.readline().strip()


def wait_until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until a condition holds, at most `seconds`."""
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.002)


def serve() -> None:
    """Run the commands of the standard input, until it ends."""
    import torch

    from foreword.cli._streams import guarded
    from foreword.cli.main import run
    from foreword.runs import hooks

    torch.set_num_threads(1)
    hooks.matmul_flops_per_second = lambda *_: 1e9  # takes long to measure
    answers = os.fdopen(os.dup(1), "w")
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            with Path(order["output"]).open("a") as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            if order["largest_file"]:
                resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest_file"],) * 2)
            with guarded():
                status = run(order["words"])
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)
        answers.write(f"{child}\n")
        answers.flush()
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        answers.flush()


if __name__ == "__main__":
    serve()
