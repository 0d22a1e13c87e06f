"""Threads that share a step: on a CPU, each computes micro-batches on its own cores.

Cores that share each operation synchronise after it, thousands of times a step, and small
operations end before the last core has woken. Threads that share the batch synchronise once.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from foreword.train.step import Accumulate, MicroBatch, accumulate_sequentially
from foreword.types import Loss

Item = TypeVar("Item")
Output = TypeVar("Output")

MAX_WORKERS = 2  # by default: each worker holds a copy of the gradients
# Adding the workers' gradients costs as much as is saved if a worker has fewer tokens than this,
# measured on two cores with models of 4 to 29 million parameters.
MIN_TOKENS = 1024


def choose_workers(requested: int, device: torch.device, rows: int, length: int) -> int:
    """Return how many threads share a micro-batch; on a GPU always one.

    Args:
        requested: the number to use, at most one per row; 0 for the fastest.
        device: where they run.
        rows: number of rows of the micro-batch.
        length: tokens per row.
    """
    if device.type != "cpu":
        return 1
    fastest = min(MAX_WORKERS, torch.get_num_threads(), max(1, rows * length // MIN_TOKENS))
    return min(requested or fastest, rows)


def accumulate_on(workers: int) -> Accumulate:
    """Return the accumulation for a number of threads; `accumulate_sequentially` for one."""
    return accumulate_sequentially if workers == 1 else ThreadedAccumulation(workers)


@dataclass(frozen=True)
class ThreadedAccumulation:
    """Gradients of micro-batches computed in threads and added in order (`Accumulate`).

    Backward passes in two threads would add to the same `.grad` in the order they finish, so each
    thread computes its gradients separately (`autograd.grad`). The sum is then reproducible.

    Attributes:
        workers: number of threads.
    """

    workers: int

    def __call__(
        self, micro_batches: Sequence[MicroBatch], parameters: Sequence[nn.Parameter]
    ) -> Iterable[Loss]:
        """Yield the loss of each micro-batch once its gradients are added."""

        def compute(micro_batch: MicroBatch) -> tuple[Loss, list[Tensor | None]]:
            loss = micro_batch.loss(keeps_casts=False)
            return loss, _gradients(loss.total, parameters)

        for start in range(0, len(micro_batches), self.workers):
            jobs = micro_batches[start : start + self.workers]
            for loss, grads in map_in_threads(compute, jobs, self.workers):
                for parameter, grad in zip(parameters, grads, strict=True):
                    if grad is not None:
                        total = grad if parameter.grad is None else parameter.grad.add_(grad)
                        parameter.grad = total
                yield loss


def _gradients(total: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor | None]:
    """Return the gradient of each parameter in its own storage and strides; None if it has none.

    Autograd may return a view, or one tensor for two parameters: neither may be scaled in place.
    """
    storages: set[int] = set()

    def in_own_storage(grad: Tensor | None, parameter: Tensor) -> Tensor | None:
        if grad is None:
            return None
        if grad.stride() != parameter.stride() or grad.untyped_storage().data_ptr() in storages:
            grad = torch.empty_like(parameter).copy_(grad)
        storages.add(grad.untyped_storage().data_ptr())
        return grad

    grads = torch.autograd.grad(total, parameters, allow_unused=True)
    return [
        in_own_storage(grad, parameter) for grad, parameter in zip(grads, parameters, strict=True)
    ]


def map_in_threads(
    work: Callable[[Item], Output], items: Sequence[Item], workers: int
) -> list[Output]:
    """Return the output of `work` for each item, in order, computed in `workers` threads.

    With one worker or one item, this thread computes it with all cores.
    """
    if min(workers, len(items)) <= 1:
        return [work(item) for item in items]
    return list(_pool(workers).map(work, items))


@functools.cache
def _pool(workers: int) -> ThreadPoolExecutor:
    cores = torch.get_num_threads()
    all_began = threading.Barrier(workers + 1)

    def begin() -> None:
        torch.get_num_threads()  # the first call in a thread copies the global number to it
        torch.set_num_threads(max(1, cores // workers))
        all_began.wait()

    pool = ThreadPoolExecutor(workers, "foreword-worker", initializer=begin)
    for _ in range(workers):
        pool.submit(int)  # the pool starts a thread per submitted item while none is idle
    all_began.wait()
    torch.set_num_threads(cores)  # the workers set the global number too
    return pool
