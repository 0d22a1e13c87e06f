"""The processes that train one model together: how many there are, and what they agree on.

A process alone gets the same answers as one of several, so the loop has no second way.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor, distributed

Memory = tuple[Tensor, ...] | None  # of a micro-batch; see `foreword.types.Hidden`


def count() -> int:
    """Return the number of processes that share a step."""
    return distributed.get_world_size() if _is_joined() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return distributed.get_rank() if _is_joined() else 0


def is_first() -> bool:
    """Return whether this process writes the log, the checkpoints and the messages."""
    return rank() == 0


def _is_joined() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def totals(*values: float) -> list[float]:
    """Return the sum of each value over all processes; without a wait for the device."""
    if count() == 1:
        return list(values)
    sums = torch.tensor(values, dtype=torch.float64)
    distributed.all_reduce(sums)
    numbers: list[float] = sums.tolist()
    return numbers


def of_first(value: float) -> float:
    """Return the value of the first process, in each of them."""
    return totals(value if is_first() else 0.0)[0]


def texts(text: str) -> list[str]:
    """Return the text of each process, in order."""
    if count() == 1:
        return [text]
    data = text.encode()
    sizes = [int(size) for size in totals(*(len(data) * (n == rank()) for n in range(count())))]
    padded = torch.zeros(max(sizes), dtype=torch.uint8)
    if data:
        padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    parts = [torch.empty_like(padded) for _ in sizes]
    distributed.all_gather(parts, padded)
    return [bytes(part[:n].tolist()).decode() for part, n in zip(parts, sizes, strict=True)]


def local_count() -> int:
    """Return the number of processes on this machine."""
    return min(count(), int(os.environ.get("LOCAL_WORLD_SIZE", count())))


def memories(device: torch.device) -> int:
    """Return how many memories the processes have: one each on GPUs, one a machine on CPUs."""
    return count() if device.type == "cuda" else count() // local_count()


def gather_memory(memory: tuple[Memory, ...], rows: int) -> tuple[Memory, ...]:
    """Return the memory of all rows of a step, in order: what `redivide` takes apart again.

    Args:
        memory: what each micro-batch of this process left.
        rows: rows of the step, over all processes.
    """
    if count() == 1 or not memory or memory[0] is None:
        return memory
    most = -(-rows // count())
    whole = []
    for of_process in _joined_rows(memory):
        padded = of_process.new_zeros(most, *of_process.shape[1:])
        padded[: len(of_process)] = of_process
        parts = [torch.empty_like(padded) for _ in range(count())]
        distributed.all_gather(parts, padded)
        sizes = [len(share) for share in torch.arange(rows).tensor_split(count())]
        whole.append(torch.cat([part[:n] for part, n in zip(parts, sizes, strict=True)]))
    return (tuple(whole),)


def redivide(memory: tuple[Memory, ...], first: int, sizes: tuple[int, ...]) -> tuple[Memory, ...]:
    """Return the memory of this process's micro-batches, from that of all rows in any division.

    Args:
        memory: the memory of the micro-batches of a whole step, in the order of its rows.
        first: the first row of this process.
        sizes: rows of each of its micro-batches.
    """
    if not memory or memory[0] is None:
        return memory
    parts = [
        torch.split(rows[first : first + sum(sizes)], list(sizes)) for rows in _joined_rows(memory)
    ]
    return tuple(zip(*parts, strict=True))


def _joined_rows(memory: tuple[Memory, ...]) -> list[Tensor]:
    """Return each tensor of a memory with the rows of all micro-batches."""
    numbered = zip(*(tensors or () for tensors in memory), strict=True)
    return [torch.cat(tensors) for tensors in numbered]
