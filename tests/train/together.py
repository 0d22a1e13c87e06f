"""A process that trains runs together with others: `RUN STOP RUN STOP ...`, 0 to train to the end.

Started by `start`, as torchrun starts one.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from foreword.runs import run as running
from foreword.train.hooks import Hook
from foreword.train.joining import joined
from foreword.train.loop import Loop
from tests import forking
from tests.train import runs


class StopAfter(Hook):
    """Ends a training after a step, as Ctrl-C does."""

    def __init__(self, step: int) -> None:
        self._step = step

    def after_step(self, loop: Loop) -> None:
        if loop.state.spent.steps == self._step:
            loop.stop()

    def run(self, loop: Loop) -> None: ...


def train_together(processes: int, orders: Sequence[tuple[Path, int]], printed: Path) -> None:
    """Train runs in this many processes, one after another, each up to a step or to its end."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    known = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    known |= {"WORLD_SIZE": str(processes), "LOCAL_RANK": "0", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    words = [str(word) for order in orders for word in order]
    commands = [
        forking.start_into(
            words, printed, environment={**known, "RANK": str(rank)}, module="tests.train.together"
        )
        for rank in range(processes)
    ]
    assert [command.wait() for command in commands] == [0] * processes, printed.read_text()


if __name__ == "__main__":
    torch.set_num_threads(1)
    with joined():
        for run, stop in zip(sys.argv[1::2], map(int, sys.argv[2::2]), strict=True):
            hooks = [StopAfter(stop)]
            is_done = running.train_run(Path(run), runs.Quiet(), runs.stage, hooks=hooks)
            assert is_done == (stop == 0)
