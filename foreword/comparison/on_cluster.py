"""A comparison on a Ray cluster: each piece a task, as soon as what it builds on is done.

The folder of the comparison must be on a disk that all machines share. A run that dies with its
machine continues elsewhere from its newest checkpoint, so that it costs at most its own time.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from foreword.comparison.compute import compute_remotely
from foreword.comparison.pieces import Piece
from foreword.comparison.run import Comparison
from foreword.errors import UserError
from foreword.process.cluster import Cluster
from foreword.settings import plugins


def require_possible(comparison: Comparison, cluster: Cluster) -> None:
    """Check that a machine of the cluster has what each cell takes.

    Raises:
        UserError: none has, or plug-ins are named, which other machines do not have.
    """
    if any(not root.distribution for root in plugins.plugged_in()):
        raise UserError(
            "--ray: cannot be combined with --plugins, whose folder other machines do not have; "
            "install the kinds as a package"
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


def run_on_cluster(
    comparison: Comparison, cluster: Cluster, after_piece: Callable[[], None] = lambda: None
) -> bool:
    """Run the pieces that are not done; a failure is recorded, and the others are run.

    Args:
        comparison: the comparison, prepared.
        cluster: runs the pieces.
        after_piece: called after each piece that was run.

    Returns:
        True: a signal raises KeyboardInterrupt, and the same call continues.

    Raises:
        UserError: another process works in the folder.
    """
    with comparison.locked():
        _run(comparison, cluster, after_piece)
    return True


def _run(comparison: Comparison, cluster: Cluster, after_piece: Callable[[], None]) -> None:
    pieces = comparison.pieces()
    waiting = [piece for piece in pieces if comparison.seconds_taken(piece) is None]
    under_way: dict[Future[Any], Piece] = {}
    show_progress = comparison.progress.stage("pieces on the cluster")
    while True:
        # Submit what can begin; what builds on a failure never can.
        waiting = [piece for piece in waiting if not comparison.is_left_out(piece)]
        for piece in [piece for piece in waiting if _can_begin(comparison, piece)]:
            waiting.remove(piece)
            with comparison.recording_failure(piece):
                order = comparison.order(piece).absolute()
                resources = comparison.grid.resources(piece.cell) if not piece.is_baseline else None
                under_way[cluster.submit(compute_remotely, order, resources=resources)] = piece
        if not under_way:
            return
        done = len(pieces) - len(waiting) - len(under_way)
        note = f"{done} of {len(pieces)} done, {len(under_way)} under way"
        show_progress(done, len(pieces), note)
        # Store what has ended.
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            piece = under_way.pop(future)
            with comparison.recording_failure(piece):
                content, warnings = future.result()
                for line in warnings:
                    comparison.progress.warn(f"{piece}: {line}")
                if content is None:  # its worker was asked to stop, and saved what it had
                    waiting.append(piece)
                    continue
                comparison.store(piece, content)
                comparison.progress.note(f"{piece}: done")
            after_piece()


def _can_begin(comparison: Comparison, piece: Piece) -> bool:
    """Return whether what a piece builds on is done: the cell's sweep, or the run it measures."""
    if piece.slot is not None:
        return comparison.trials.can_begin(piece.cell, piece.slot)
    if piece.is_baseline:
        return True
    if piece.is_pretraining:
        return comparison.trials.is_done(piece.cell)
    return comparison.seconds_taken(Piece(piece.cell, piece.seed)) is not None
