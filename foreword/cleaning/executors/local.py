"""Tasks on this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.cleaning.executors._contract import Executor
from foreword.errors import UserError
from foreword.settings.ranges import Workers

POLL = 1.0  # seconds


@dataclass(frozen=True)
class Local(Executor):
    """Run tasks in processes of this machine.

    Attributes:
        workers: number of processes; 0 for one per core.
    """

    workers: Workers = 0

    def run(self, blocks: list[Any], tasks: int, marks: Path) -> None:
        from datatrove.executor import LocalPipelineExecutor

        executor = LocalPipelineExecutor(blocks, tasks=tasks, logging_dir=str(marks))
        ranks = executor.get_incomplete_ranks()
        workers = min(len(ranks), self.workers or os.cpu_count() or 1)
        if workers > 1:
            _run_in_processes(executor, ranks, workers)
            return
        for rank in ranks:
            executor.pipeline = deepcopy(blocks)
            executor._run_for_rank(rank)


def _run_in_processes(executor: Any, ranks: Sequence[int], workers: int) -> None:
    """Run tasks in processes that are not forked, so none of them holds the lock of the result.

    datatrove's own would leave a process behind if this one is killed.
    """
    import multiprocess

    context = multiprocess.get_context("spawn")
    with context.Pool(workers, _begin_worker) as pool:
        processes = {process.pid for process in pool._pool}
        results = pool.imap_unordered(executor._run_for_rank, ranks)
        for _ in ranks:
            while True:
                try:
                    results.next(timeout=POLL)
                    break
                except multiprocess.TimeoutError:
                    if {process.pid for process in pool._pool} != processes:
                        raise UserError(
                            "a worker process died, probably out of memory; fewer --workers need "
                            "less, and the same command continues"
                        ) from None


def _begin_worker() -> None:
    """Silence datatrove, and leave Ctrl-C to the process that waits, which then ends the others."""
    from foreword.cleaning import blocks  # noqa: F401 - which silences it

    signal.signal(signal.SIGINT, signal.SIG_IGN)
