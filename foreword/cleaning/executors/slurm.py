"""Tasks as jobs of Slurm."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.cleaning.executors._contract import Executor, TasksFailedError
from foreword.errors import UserError
from foreword.ranges import Count, Workers

POLL = 5.0  # seconds


@dataclass(frozen=True)
class Slurm(Executor):
    """Run tasks as jobs of Slurm, whose machines share the folders of sources and result.

    The command submits one job array for each stage and waits for it. Stopped by Ctrl-C, it cancels
    the jobs. After a kill they go on: cancel them (`scancel --name foreword-clean`) before the same
    command submits those that are left.

    Attributes:
        partition: where jobs are queued.
        time: the time limit of a job (`24:00:00`).
        workers: most tasks at once; 0 for all.
        cpus: cores of each task.
        memory: memory of each core, in GB.
        environment: a command that each job runs first, such as one that activates packages.
    """

    partition: str = ""
    time: str = "24:00:00"
    workers: Workers = 0
    cpus: Count = 1
    memory: Count = 2
    environment: str = ""

    def run(self, blocks: list[Any], tasks: int, marks: Path) -> None:
        from datatrove.executor import SlurmPipelineExecutor

        if shutil.which("sbatch") is None:
            raise UserError("clean.executor.kind: slurm requires the command sbatch here")
        if not self.partition:
            raise UserError("clean.executor.partition: required; where jobs are queued")
        executor = SlurmPipelineExecutor(
            blocks,
            tasks=tasks,
            time=self.time,
            partition=self.partition,
            cpus_per_task=self.cpus,
            mem_per_cpu_gb=self.memory,
            workers=self.workers or -1,
            job_name="foreword-clean",
            env_command=self.environment or None,
            logging_dir=str(marks.absolute()),
            slurm_logs_folder=str(marks.absolute() / "slurm"),
        )
        if not executor.get_incomplete_ranks():
            return
        executor.run()
        try:
            while executor.get_incomplete_ranks():
                time.sleep(POLL)
                if not _is_queued(executor.job_id) and executor.get_incomplete_ranks():
                    raise TasksFailedError(len(executor.get_incomplete_ranks()), tasks, marks)
        except KeyboardInterrupt:
            subprocess.run(["scancel", executor.job_id], check=False)
            raise


def _is_queued(job: str) -> bool:
    """Return whether any task of a job is waiting or running."""
    command = ["squeue", "--noheader", "--jobs", job]
    return bool(subprocess.run(command, capture_output=True, check=False).stdout.strip())
