"""Tasks as jobs of Slurm.

Jobs run datatrove's executor, so ranks and marks of finished tasks are its own. They are not
submitted by its launcher, whose job for statistics waits forever if a task fails, and which says
neither why `sbatch` refused nor whether tasks wait, failed or will never start.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.cleaning.executors._contract import Executor, TasksFailedError
from foreword.data.fingerprint import digest
from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.settings.ranges import Count, Workers

POLL = 5.0  # seconds
LAG = 60.0  # seconds after which a shared folder shows what another machine wrote
PATIENCE = 600.0  # seconds for Slurm to answer, as after its own restart
MOST = 1000  # tasks of a job array; Slurm's own default allows one more
ENDED = {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE"}
ENDED |= {"NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "REVOKED"}
WORD = re.compile(r"[\w.,:+-]*")  # in a line of options to sbatch
NEVER = re.compile(  # reasons to wait that no time removes
    "PartitionTimeLimit|PerJob|Invalid|NotAllowed|BadConstraints|NeverSatisfied|launch.failed"
)


@dataclass(frozen=True)
class Slurm(Executor):
    """Run tasks as jobs of Slurm, whose machines share the folders of sources and result.

    The command submits a job array for each stage, waits for it, and cancels it if stopped. After a
    kill the jobs go on; the same command cancels them before it submits what is left.

    Attributes:
        partition: where jobs are queued.
        time: the time limit of a job (`24:00:00`).
        workers: most tasks at once; 0 for all.
        cpus: cores of each task.
        memory: memory of each core, in GB.
        environment: a command that each job runs first, such as `module load`; given by --set, not
            in a recipe. Jobs have the variables of this command and find its Python.
    """

    partition: str = ""
    time: str = "24:00:00"
    workers: Workers = 0
    cpus: Count = 1
    memory: Count = 2
    environment: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("partition", self.partition), ("time", self.time)):
            if not WORD.fullmatch(value):
                raise ValueError(f"{name}: must be one word for sbatch, got {value!r}")

    def run(self, blocks: list[Any], tasks: int, marks: Path) -> None:
        from datatrove.executor import SlurmPipelineExecutor

        if shutil.which("sbatch") is None:
            raise UserError("clean.executor.kind: slurm requires the command sbatch here")
        if not self.partition:
            raise UserError("clean.executor.partition: required; where jobs are queued")

        # What a job runs. Its name is that of the stage in this folder, so it is found again.
        folder = marks.absolute()
        queue = _Queue(f"foreword-clean-{digest(str(folder))[:8]}")
        output = f'"{folder}/slurm/%A_%a.out"'
        executor = SlurmPipelineExecutor(
            blocks,
            tasks=tasks,
            time=self.time,
            partition=self.partition,
            cpus_per_task=self.cpus,
            mem_per_cpu_gb=self.memory,
            workers=self.workers or -1,
            job_name=queue.name,
            qos=None,
            env_command=f"export PATH={_folder_of_commands()}:$PATH\n{self.environment}",
            max_array_size=MOST,
            sbatch_args={"output": output, "error": output},
            logging_dir=str(folder),
            slurm_logs_folder=str(folder / "slurm"),
        )

        # The jobs of a command that was killed end, those of this one run to their end.
        queue.cancel()
        queue.wait()
        ranks = executor.get_incomplete_ranks()
        try:
            _submit(executor, ranks, queue)
            queue.wait()
        finally:
            queue.cancel()

        # Slurm knows which tasks failed; the marks of others may not be seen here yet.
        failed, end = queue.failed, time.monotonic() + LAG
        while (left := executor.get_incomplete_ranks()) and not failed and time.monotonic() < end:
            time.sleep(POLL)
        if left:
            raise TasksFailedError(len(left), tasks, *_cause(failed, marks / "slurm"))


class _Queue:
    """The jobs of one name in Slurm's queue.

    Args:
        name: the name.

    Attributes:
        jobs: numbers of those submitted here.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.jobs: list[str] = []
        self._states: dict[str, str] = {}  # of each task, as last seen

    @property
    def failed(self) -> dict[str, str]:
        """The states of the tasks submitted here that did not complete."""
        return {
            task: state
            for task, state in self._states.items()
            if task.partition("_")[0] in self.jobs and state != "COMPLETED"
        }

    def submit(self, script: Path, *options: str) -> None:
        """Submit a script, to run when those before it have ended."""
        if self.jobs:
            options = (*options, f"--dependency=afterany:{self.jobs[-1]}")
        done = _output_of("sbatch", "--parsable", *options, str(script))
        if done.returncode:
            lines = [line.removeprefix("sbatch: error: ") for line in done.stderr.splitlines()]
            raise UserError(f"clean.executor: sbatch refuses the jobs: {'; '.join(lines)}")
        self.jobs.append(done.stdout.strip().partition(";")[0])

    def cancel(self) -> None:
        """Cancel all that wait or run."""
        _output_of("scancel", "--quiet", "--name", self.name)

    def wait(self) -> None:
        """Wait until none of the tasks waits or runs."""
        words = ["--noheader", "--array", "--states=all", "--name", self.name]
        heard = time.monotonic()
        while True:
            done = _output_of("squeue", *words, "--format=%i %T %r")
            if not done.returncode:
                heard = time.monotonic()
                tasks = [[*line.split(maxsplit=2), ""][:3] for line in done.stdout.splitlines()]
                self._states |= {task: state for task, state, _ in tasks}
                for task, state, reason in tasks:
                    if state == "PENDING" and NEVER.search(reason):
                        raise UserError(
                            f"clean.executor: Slurm will never start job {task} ({reason}); change "
                            "time, memory, cpus or partition"
                        )
                if all(state in ENDED for _, state, _ in tasks):
                    return
            elif time.monotonic() > heard + PATIENCE:
                raise UserError(f"Slurm does not answer: {done.stderr.strip()}")
            time.sleep(POLL)


def _submit(executor: Any, ranks: list[int], queue: _Queue) -> None:
    """Submit the tasks that are left.

    datatrove's own would also submit a job that waits forever if a task fails, and hide why Slurm
    refused one.
    """
    import dill

    folder = Path(executor.logging_dir.path)
    script, pickled = folder / "launch_script.slurm", folder / "executor.pik"
    words = shlex.join(["launch_pickled_pipeline", str(pickled)])
    with atomic.user_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        pickled.write_bytes(dill.dumps(executor, fmode=dill.CONTENTS_FMODE))
        (folder / "ranks_to_run.json").write_text(stored.to_json(ranks))
    for first in range(0, len(ranks), MOST):
        with atomic.user_errors(folder):
            options = executor.get_sbatch_args(min(MOST, len(ranks) - first))
            script.write_text(executor.get_launch_file_contents(options, words))
        queue.submit(script, f"--export=ALL,RUN_OFFSET={first // MOST}")


def _cause(failed: dict[str, str], logs: Path) -> tuple[Path, str]:
    """Return the file with the output of a task that failed, and what Slurm and it say last."""
    for task, state in failed.items():
        log = logs / f"{task}.out"
        lines = log.read_text("utf-8", "replace").split("\n") if log.exists() else []
        said = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
        return (log if lines else logs), f"Slurm's job {task} ended as {state} ({said})"
    return logs, ""


def _folder_of_commands() -> str:
    """Return the folder of this Python and its commands, for a shell."""
    return shlex.quote(str(Path(sys.executable).parent))


def _output_of(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
