"""A comparison beside each other: each job a task, as soon as what it builds on is done.

Tasks run on a Ray cluster, or in child processes of this one, which share its cores and GPUs.

On a cluster the folder of the comparison must be on a disk that all machines share. A run that dies
with its machine continues elsewhere from its newest checkpoint, so it costs at most its own time.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from foreword.comparison.compute import compute_remotely
from foreword.comparison.jobs import Job
from foreword.comparison.run import Comparison
from foreword.errors import UserError
from foreword.process.children import Children, Pool
from foreword.runs.stages import JOBS
from foreword.settings import plugins


def require_possible(comparison: Comparison, cluster: Pool) -> None:
    """Check that a machine of the cluster has what each cell takes.

    Raises:
        UserError: none has, or plug-ins are named, which other machines do not have.
    """
    option = "--jobs" if isinstance(cluster, Children) else "--ray"
    if any(not root.distribution for root in plugins.plugged_in()):
        raise UserError(
            f"{option}: cannot be combined with --plugins, whose folder others lack; install "
            "the kinds as a package"
        )
    machines = cluster.machines()
    for cell in comparison.grid.cells:
        resources = comparison.grid.resources(cell)
        if not any(
            resources.cpus <= machine.cpus and resources.gpus <= machine.gpus
            for machine in machines
        ):
            most = max((machine.cpus, machine.gpus) for machine in machines) if machines else (0, 0)
            raise UserError(
                f"cell '{cell.name}': takes {resources.cpus:g} cores and {resources.gpus:g} GPUs, "
                "and no machine of the cluster has so many (the largest: "
                f"{most[0]:g} and {most[1]:g}); set cpus and gpus of the cell or the grid"
            )


def run_on_pool(
    comparison: Comparison,
    cluster: Pool,
    after_job: Callable[[], None] = lambda: None,
) -> None:
    """Run the jobs that are not done; a failure is recorded, and the others are run.

    A signal raises KeyboardInterrupt, and the same call continues.

    Args:
        comparison: the comparison, prepared.
        cluster: runs the jobs.
        after_job: called after each job that was run.

    Raises:
        UserError: another process works in the folder.
    """
    with comparison.locked():
        _run(comparison, cluster, after_job)


def _run(comparison: Comparison, cluster: Pool, after_job: Callable[[], None]) -> None:
    jobs = comparison.jobs()
    waiting = [job for job in jobs if comparison.seconds_taken(job) is None]
    under_way: dict[Future[Any], Job] = {}
    while True:
        # Submit what can begin; what builds on a failure never can.
        waiting = [job for job in waiting if not comparison.is_left_out(job)]
        for job in [job for job in waiting if _can_begin(comparison, job)]:
            waiting.remove(job)
            if any(comparison.is_one_tuning(job, other) for other in under_way.values()):
                continue  # its score is read from the other's result
            with comparison.recording_failure(job):
                inputs = comparison.inputs(job).absolute()
                resources = comparison.grid.resources(job.cell) if not job.is_baseline else None
                under_way[cluster.submit(compute_remotely, inputs, resources=resources)] = job
        if not under_way:
            return
        done = len(jobs) - len(waiting) - len(under_way)
        comparison.progress.stage(JOBS)(done, len(jobs), f"{done} of {len(jobs)} done")
        # Store what has ended.
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            job = under_way.pop(future)
            with comparison.recording_failure(job):
                content, warnings = future.result()
                for line in warnings:
                    comparison.progress.warn(f"{job}: {line}")
                if content is None:  # its worker was asked to stop, and saved what it had
                    waiting.append(job)
                    continue
                comparison.store(job, content)
                comparison.progress.note(f"{job}: done")
            after_job()


def _can_begin(comparison: Comparison, job: Job) -> bool:
    """Return whether what a job builds on is done: the cell's sweep, or the run it measures."""
    if job.planned is not None:
        return comparison.trials.can_begin(job.cell, job.planned)
    if job.is_baseline:
        return True
    if job.is_pretraining and (before := comparison.grid.before(job.cell)) is not None:
        return comparison.seconds_taken(Job(before, job.seed)) is not None
    if job.is_pretraining:
        return comparison.trials.is_done(job.cell)
    return comparison.seconds_taken(Job(job.cell, job.seed)) is not None
