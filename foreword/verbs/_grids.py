"""What verbs share that train the cells of a grid: its text, where it is trained, how it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.results import Part, Remark, ResultTable
from foreword.errors import UserError
from foreword.settings.ranges import Count
from foreword.verbs._arguments import paths
from foreword.verbs._contract import Flag, PathName, Paths
from foreword.verbs._groups import ReadsText, ShowsProgress

if TYPE_CHECKING:
    from foreword.comparison.compare import Compared
    from foreword.comparison.grid import Grid
    from foreword.comparison.tables import MarkdownTable
    from foreword.process.children import Pool
    from foreword.process.cluster import Cluster


@dataclass(frozen=True, kw_only=True)
class TrainsGrid(ReadsText, ShowsProgress):
    """The cells of a grid to train.

    Attributes:
        heldout: held-out text; default: a share of the data.
        dry_run: prepare the data and estimate the time; train nothing.
        ray: work on a Ray cluster: HOST:PORT, auto, or local to start one on this machine.
        jobs: number of cells to train at a time, in processes that share this machine and its GPU.
    """

    heldout: Paths | None = None
    dry_run: bool = False
    ray: Annotated[str | None, Flag(metavar="ADDRESS")] = None
    jobs: Count | None = None

    def text(self, data: Paths | None, tasks: PathName | None = None) -> dict[str, Any]:
        """Return the text as grids are loaded with it, and the folder of the files of tasks."""
        from foreword.data.remote_tokens import local

        return {
            "data": [local(text) for text in paths(data)],
            "tasks": None if tasks is None else Path(tasks),
            "heldout": list(paths(self.heldout)),
            "read": self.reading,
        }

    def compared(self, grid: Grid, out: Path, *, is_dry: bool, **how: Any) -> Compared:
        """Train, or forecast, the cells of a grid."""
        from foreword.comparison.compare import compare

        try:
            with self._workers() as workers, self.display(announces=True) as display:
                return compare(grid, out, display, workers, is_dry=is_dry, **how)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"stopped; the same command continues in {out}") from None

    def _workers(self) -> AbstractContextManager[Pool | None]:
        """Return what jobs run on; None for this process."""
        from foreword.process.children import Children

        if self.jobs is None:
            return connected_to(self.ray)
        if self.ray is not None:
            raise UserError("--jobs cannot be combined with --ray, which uses all of the cluster")
        return Children(self.jobs, f"--jobs {max(1, self.jobs // 2)}")


def connected_to(ray: str | None) -> AbstractContextManager[Cluster | None]:
    """Return the connection to a Ray cluster; of None, to none."""
    from foreword.process.cluster import connected

    return nullcontext() if ray is None else connected(ray)


def status_of(done: Any) -> int:
    """Return the exit status of a `Compared`, or of what has its fields; None for nothing to do.

    0 if nothing failed, 2 if only mistakes and a lack of memory did, 1 if Foreword itself, 130 if
    it was stopped.
    """
    if done is None:
        return 0
    if done.forecast is not None:
        return 2 if any(cell.error for cell in done.forecast.cells) else 0
    if not done.is_done:
        return 130
    failures = done.results.comparison.failures
    return 1 if any(one.is_fault for one in failures) else 2 if failures else 0


def shown_forecast(done: Any, *notes: str) -> list[Part]:
    """Return the time that each cell will take, and notes."""
    from foreword.comparison.tables import forecast_table

    return [shown_table(forecast_table(done.forecast)), *map(Remark, [*done.notes, *notes])]


def shown_table(table: MarkdownTable, columns: Sequence[str] = ()) -> ResultTable:
    """Return a table of a comparison, with other names of its columns if they are given."""
    names = columns or table.columns
    rows: list[Mapping[str, Any]] = [dict(zip(names, row, strict=True)) for row in table.rows]
    return ResultTable(rows, table.title)


def failed(done: Any) -> list[str]:
    """Return what failed, a line each."""
    failures = () if done is None else done.results.comparison.failures
    return [f"{one.job}: {one.error}" for one in failures]
