"""Work side by side: on a processor, threads that each have cores of their own.

Cores that share each operation wait for one another at the end of it, thousands of times a step,
and small operations are over before the last core has woken. Threads that share the batch wait
once.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Made = TypeVar("Made")

# Unless asked for more: each has gradients of its own until they are added, ...
MOST = 2
# ... which costs as much as is saved where a worker has fewer tokens than this, measured on two
# cores with models of 4 to 29 million parameters.
TOKENS = 1024


def choose_workers(asked: int, device: torch.device, rows: int, length: int) -> int:
    """How many threads share a micro-batch; one has all of a GPU.

    Args:
        asked: as many, if there are rows for them; 0 for what is fastest.
        device: where they run.
        rows: of the micro-batch.
        length: tokens of a row.
    """
    if device.type != "cpu":
        return 1
    fastest = min(MOST, torch.get_num_threads(), max(1, rows * length // TOKENS))
    return min(asked or fastest, rows)


def side_by_side(work: Callable[[Item], Made], items: Sequence[Item], workers: int) -> list[Made]:
    """What `work` makes of each item, in their order; at most `workers` of them at a time.

    One worker, or one item, is this thread with all cores.
    """
    if min(workers, len(items)) <= 1:
        return [work(item) for item in items]
    return list(_pool(workers).map(work, items))


@functools.cache
def _pool(workers: int) -> ThreadPoolExecutor:
    cores = torch.get_num_threads()
    all_began = threading.Barrier(workers + 1)

    def begin() -> None:
        torch.get_num_threads()  # a thread's first question sets its number, to everyone's
        torch.set_num_threads(max(1, cores // workers))
        all_began.wait()

    pool = ThreadPoolExecutor(workers, "foreword-worker", initializer=begin)
    for _ in range(workers):
        pool.submit(int)  # a thread is begun when there is something to do and none is idle
    all_began.wait()
    torch.set_num_threads(cores)  # the workers changed everyone's number as well as their own
    return pool
