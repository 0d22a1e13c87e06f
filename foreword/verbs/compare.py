"""`foreword compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.results import Part, Remark, Result, ResultTable
from foreword.verbs._contract import ARGUMENT, Flag, PathName, Paths, Verb
from foreword.verbs._grids import TrainsGrid, failed, shown_forecast, shown_table, status_of
from foreword.verbs._groups import Budgets

if TYPE_CHECKING:
    from foreword.comparison.forecast import ComparisonForecast
    from foreword.comparison.grid import Grid
    from foreword.comparison.results import Results
    from foreword.comparison.tables import MarkdownTable

FILES = ("table.md", "results.csv", "results.json", "plot.png")


@dataclass(frozen=True, repr=False)
class ComparisonResult(Result):
    """The results of a comparison, as far as it is done.

    Attributes:
        out: its folder, with `table.md`, `results.csv`, `results.json` and `plot.png`.
        is_done: whether all is done; if not, the same call continues.
        results: all numbers.
        notes: how to read the tables, what failed and what is not done.
        forecast: with `dry_run`, the time and memory that each cell will take.
    """

    out: Path
    is_done: bool
    results: Results
    notes: tuple[str, ...]
    forecast: ComparisonForecast | None = None

    @property
    def failures(self) -> list[str]:
        """What failed, a line each."""
        return failed(self)

    @property
    def status(self) -> int:
        """The exit status of the command; see `status_of`."""
        return status_of(self)

    def tables(self) -> Sequence[Part]:
        """Return the forecast, or pretraining, scores, sweeps and samples; how to read them."""
        from foreword.comparison import tables

        if self.forecast is not None:
            return shown_forecast(self)
        files = "  ".join(str(self.out / name) for name in FILES)
        last = files if self.is_done else f"stopped; the same command continues in {self.out}"
        shown = map(_shown, tables.tables(self.results))
        return [*shown, *map(Remark, self.notes), Remark(last)]

    def data(self) -> dict[str, Any]:
        """Return all numbers, for programs: as in `results.json`, or the forecast."""
        from foreword.comparison import tables

        if self.forecast is not None:
            return self.forecast.as_json()
        return tables.as_json(self.results)


@dataclass(frozen=True)
class Compare(Budgets, TrainsGrid, Verb[ComparisonResult]):
    """Train each cell of a grid at one budget, fine-tune it, and tabulate the results.

        foreword.compare("ladder", "books/", "runs/ladder", hours=0.1)

    Kill it at any moment; the same command continues. What a changed grid has in common with
    earlier work is not done again. A cell that fails is reported, and the others go on.

    Attributes:
        grid: a grid's name (objectives) or a .toml file.
        data: text to replace the grid's own; or a prepared folder, also on object storage; of cells
            with data.sources, the folder that their paths start from.
        out: folder to create, or to continue.
        heldout: held-out text to replace the grid's own.
        tasks: folder of the files of tasks and probes; default: next to the grid.
        dry_run: prepare the data and estimate; train nothing.
        ray: work on a Ray cluster: HOST:PORT, auto, or local to start one on this machine. Each
            cell has the cpus and gpus that the grid or the cell states, and all machines share the
            disk of --out and of the tasks.
        jobs: work on as many cells at a time, in processes that share this machine and its GPU.
    """

    grid: Annotated[PathName, ARGUMENT]
    data: Paths | None = None
    out: Annotated[PathName, Flag(is_required=True)] = "comparison"
    _: KW_ONLY
    tasks: PathName | None = None

    def __call__(self) -> ComparisonResult:
        grid, folder = self._grid(), Path(self.out)
        done = self.compared(grid, folder, is_dry=self.dry_run)
        return ComparisonResult(folder, done.is_done, done.results, done.notes, done.forecast)

    def _grid(self) -> Grid:
        from foreword.comparison.grid import load_grid
        from foreword.runs.corpus import is_prepared

        text = self.text(self.data, self.tasks)
        grid = load_grid(str(self.grid), budget=self.budget(), **text)
        if is_prepared(grid.data):
            self.refuse_reading(f"{grid.data[0]} holds prepared text, which was read already")
        return grid


def _shown(table: MarkdownTable) -> ResultTable:
    """Return a table with unique columns: those of random weights begin with the one before."""
    from foreword.comparison.probing import RANDOM
    from foreword.comparison.tables import SCRATCH

    columns = [
        f"{before},\n{name}" if name in (SCRATCH, RANDOM) else name
        for name, before in zip(table.columns, ["", *table.columns], strict=False)
    ]
    return shown_table(table, columns)
