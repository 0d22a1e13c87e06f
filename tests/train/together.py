"""A process that trains runs together with others: `RUN STOP RUN STOP ...`, 0 to train to the end.

With `disk` in place of a step the disk of the second process is full after the first step, with
`memory` it runs out of memory.

Started by `train_together`, as torchrun starts one.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

from benchmarks.gradients import FirstGradient
from foreword.errors import PeerError, UserError
from foreword.evaluation.samples import samples
from foreword.nn.sharded import is_sharded
from foreword.runs import run as running
from foreword.runs.hooks import Probing
from foreword.runs.trained_model import TrainedModel
from foreword.train import processes, tensor_files
from foreword.train.hooks import Hook
from foreword.train.joining import joined
from foreword.train.loop import Loop
from tests import forking
from tests.train import runs

GRADIENT = "gradient.safetensors"  # in a run: of its first step
SHOWN = ("ddp", "fsdp", "hsdp")  # runs with samples


def probing_of(tables: Sequence[Mapping[str, Any]]) -> Probing | None:
    """Return a probe of the weights that stands for all, of a run that stores any."""

    def norm(trained: TrainedModel) -> dict[str, float]:
        assert not any(map(is_sharded, trained.model.parameters()))
        norms = [parameter.detach().norm() for parameter in trained.model.parameters()]
        return {"norm": float(torch.stack(norms).norm())}

    return norm if tables else None


class StopAfter(Hook):
    """Ends a training after a step, as Ctrl-C does."""

    def __init__(self, step: int) -> None:
        self._step = step

    def after_step(self, loop: Loop) -> None:
        if loop.state.spent.steps == self._step:
            loop.stop()

    def run(self, loop: Loop) -> None: ...


class Fault(Hook):
    """Lets something end the second process, or fail in it, after the first step."""

    def __init__(self, fault: str) -> None:
        self._fault = fault

    def after_step(self, loop: Loop) -> None:
        if processes.rank() != 1:
            return
        if self._fault == "memory":
            raise MemoryError
        tensor_files.write = self._refuse

    def _refuse(self, *_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    def run(self, loop: Loop) -> None: ...


def train_run(run: Path, stop: str = "0") -> bool:
    """Train a run in this process, and write its first gradient; return whether it is done."""
    hooks: list[Hook] = [StopAfter(int(stop)) if stop.isdigit() else Fault(stop)]
    if stop == "0":
        hooks.append(FirstGradient(run / GRADIENT))
    shows = samples if run.name in SHOWN else None
    return running.train_run(run, runs.Quiet(), shows, hooks, probing_of)


def train_together(
    count: int, orders: Sequence[tuple[Path, int | str]], printed: Path
) -> list[int]:
    """Train runs in this many processes, one after another.

    Args:
        count: number of processes.
        orders: runs, and the steps or faults at which they end; 0 for none.
        printed: receives what the processes print.

    Returns:
        The exit status of each process.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    known = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    known |= {"WORLD_SIZE": str(count), "LOCAL_RANK": "0", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    words = [str(word) for order in orders for word in order]
    commands = [
        forking.start_into(
            words, printed, environment={**known, "RANK": str(rank)}, module="tests.train.together"
        )
        for rank in range(count)
    ]
    return [command.wait() for command in commands]


if __name__ == "__main__":
    torch.set_num_threads(1)
    try:
        with joined():
            for run, stop in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
                assert train_run(Path(run), stop) == (stop == "0")
    except UserError as error:
        sys.stdout.write(f"{error}\n")
        sys.exit(2)
    except PeerError:
        sys.exit(3)
