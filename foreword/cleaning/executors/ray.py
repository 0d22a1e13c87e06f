"""Tasks on a cluster of Ray."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.cleaning.executors._contract import Executor, TasksFailedError
from foreword.errors import UserError
from foreword.process.cluster import connected
from foreword.settings.ranges import Count, Workers


@dataclass(frozen=True)
class Ray(Executor):
    """Run tasks on a cluster of Ray, whose machines share the folders of sources and result.

    It joins the cluster of `RAY_ADDRESS`, or starts one on this machine.

    Attributes:
        workers: most tasks at once; 0 for all.
        cpus: cores of each task.
        memory: memory of each core, in GB.
    """

    workers: Workers = 0
    cpus: Count = 1
    memory: Count = 2

    def run(self, blocks: list[Any], tasks: int, marks: Path) -> None:
        try:
            import ray  # noqa: F401
            from datatrove.executor import RayPipelineExecutor
        except ImportError as error:
            raise UserError(
                "clean.executor.kind: ray requires ray: pip install 'ray[default]'"
            ) from error
        executor = RayPipelineExecutor(
            blocks,
            tasks=tasks,
            workers=self.workers or -1,
            logging_dir=str(marks.absolute()),
            cpus_per_task=self.cpus,
            mem_per_cpu_gb=self.memory,
        )
        # Not whatever runs on this machine.
        with connected(os.environ.get("RAY_ADDRESS", "local")):
            executor.run()
        if left := executor.get_incomplete_ranks():
            raise TasksFailedError(len(left), tasks, marks)
