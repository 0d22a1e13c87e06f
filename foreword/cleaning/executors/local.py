"""Tasks on this machine."""

from __future__ import annotations

import os
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.cleaning.executors._contract import Executor
from foreword.ranges import Workers


@dataclass(frozen=True)
class Local(Executor):
    """Run tasks in processes of this machine.

    Attributes:
        workers: number of processes; 0 for one per core.
    """

    workers: Workers = 0

    def run(self, blocks: list[Any], tasks: int, marks: Path) -> None:
        from datatrove.executor import LocalPipelineExecutor

        workers = min(tasks, self.workers or len(os.sched_getaffinity(0)))
        executor = LocalPipelineExecutor(
            blocks, tasks=tasks, workers=workers, logging_dir=str(marks), start_method="spawn"
        )
        if workers > 1:
            executor.run()
            return
        for rank in executor.get_incomplete_ranks():
            executor.pipeline = deepcopy(blocks)
            executor._run_for_rank(rank)
