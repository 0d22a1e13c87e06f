"""Threads that share a step: on a CPU, each computes micro-batches on cores of its own.

Cores that share each operation wait for one another at the end of it, thousands of times a step,
and small operations are over before the last core has woken. Threads that share the batch wait
once.
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

from foreword.train.step import Accumulate, MicroBatch, backward
from foreword.types import Loss

Item = TypeVar("Item")
Made = TypeVar("Made")

# Unless more are requested: each has gradients of its own until they are added, ...
MOST = 2
# ... which costs as much as is saved if a worker has fewer tokens than this, measured on two
# cores with models of 4 to 29 million parameters.
TOKENS = 1024


def choose_workers(requested: int, device: torch.device, rows: int, length: int) -> int:
    """Return how many threads share a micro-batch; one has all of a GPU.

    Args:
        requested: as many, if there are rows for them; 0 for what is fastest.
        device: where they run.
        rows: of the micro-batch.
        length: tokens of a row.
    """
    if device.type != "cpu":
        return 1
    fastest = min(MOST, torch.get_num_threads(), max(1, rows * length // TOKENS))
    return min(requested or fastest, rows)


def accumulate_on(workers: int) -> Accumulate:
    """Return how `workers` threads add the gradients of micro-batches; one is plain `backward`."""
    return backward if workers == 1 else ThreadedAccumulation(workers)


@dataclass(frozen=True)
class ThreadedAccumulation:
    """Gradients of micro-batches computed in threads and added in order (`Accumulate`).

    `backward` in two threads would add to the same `.grad` in whatever order they finish, so each
    thread asks autograd for gradients of its own. The sum is then the same each time.

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
            for loss, grads in side_by_side(compute, jobs, self.workers):
                for parameter, grad in zip(parameters, grads, strict=True):
                    if grad is not None:
                        both = grad if parameter.grad is None else parameter.grad.add_(grad)
                        parameter.grad = both
                yield loss


def _gradients(total: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor | None]:
    """Return the gradient of each parameter in its own storage and strides; None if it has none.

    Autograd may return a view, or one tensor for two parameters: neither may be scaled in place.
    """
    storages: set[int] = set()

    def own(grad: Tensor | None, parameter: Tensor) -> Tensor | None:
        if grad is None:
            return None
        if grad.stride() != parameter.stride() or grad.untyped_storage().data_ptr() in storages:
            grad = torch.empty_like(parameter).copy_(grad)
        storages.add(grad.untyped_storage().data_ptr())
        return grad

    grads = torch.autograd.grad(total, parameters, allow_unused=True)
    return [own(grad, parameter) for grad, parameter in zip(grads, parameters, strict=True)]


def side_by_side(work: Callable[[Item], Made], items: Sequence[Item], workers: int) -> list[Made]:
    """Return what `work` makes of each item, in order; at most `workers` of them at a time.

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
