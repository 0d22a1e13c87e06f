"""`foreword.compare`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.api import _arguments
from foreword.api._arguments import PathName, Paths, checked
from foreword.api._cluster import on_cluster
from foreword.api._result import FactsAndRows
from foreword.api.progress import ProgressDisplay, progress_of
from foreword.comparison import tables
from foreword.comparison.forecast import ComparisonForecast, forecast
from foreword.comparison.grid import load_grid
from foreword.comparison.on_cluster import require_possible, run_on_cluster
from foreword.comparison.pieces import CellProgress
from foreword.comparison.plot import write_plot
from foreword.comparison.power import power_notes
from foreword.comparison.probing import RANDOM
from foreword.comparison.results import Results, gather
from foreword.comparison.run import Comparison
from foreword.data.remote_tokens import local
from foreword.disk import atomic
from foreword.display.bar import rough
from foreword.runs.corpus import is_prepared


@dataclass(frozen=True, repr=False)
class ComparisonResult(FactsAndRows):
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
        return [f"{f.piece}: {f.error}" for f in self.results.comparison.failures]

    @property
    def exit_status(self) -> int:
        """The status of `foreword compare`.

        0 if nothing failed, 2 if only mistakes and a lack of memory did, 1 if Foreword itself, 130
        if it was stopped.
        """
        if self.forecast is not None:
            return 2 if any(cell.error for cell in self.forecast.cells) else 0
        if not self.is_done:
            return 130
        failures = self.results.comparison.failures
        if any(failure.is_fault for failure in failures):
            return 1
        return 2 if failures else 0

    @property
    def markdown(self) -> list[tables.MarkdownTable]:
        """The tables for people: the forecast, or pretraining, scores, sweeps and samples."""
        if self.forecast is not None:
            return [tables.forecast_table(self.forecast)]
        return tables.tables(self.results)

    def as_json(self) -> dict[str, Any]:
        """Return all numbers, for programs: as in `results.json`, or the forecast."""
        if self.forecast is not None:
            return self.forecast.as_json()
        return tables.as_json(self.results)

    def _facts(self) -> Mapping[str, Any]:
        return {"folder": self.out, "done": self.is_done, "failed": self.failures or None}

    def _tables(self) -> Sequence[Sequence[Mapping[str, Any]]]:
        return [
            [dict(zip(_unique(table.columns), row, strict=True)) for row in table.rows]
            for table in self.markdown
            if table.title != tables.SAMPLES
        ]


@checked
def compare(
    grid: PathName,
    data: Paths | None = None,
    out: PathName = "comparison",
    *,
    heldout: Paths | None = None,
    tasks: PathName | None = None,
    hours: float | None = None,
    tokens: float | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    flops: float | None = None,
    field: str | None = None,
    target: str | None = None,
    documents: str | None = None,
    errors: str | None = None,
    dry_run: bool = False,
    ray: str | None = None,
    progress: bool | ProgressDisplay = True,
) -> ComparisonResult:
    """Train each cell of a grid at one budget, fine-tune it, and tabulate the results.

        foreword.compare("ladder", "books/", "runs/ladder", hours=0.1)

    Interrupt it at any moment; the same call continues. A cell that fails is reported, and the
    others go on.

    Args:
        grid: its name (`foreword.show("grids")`) or a `.toml` file.
        data: text in place of the grid's own; or a folder of prepared text, also on object storage;
            of cells with `data.sources`, the folder that their paths start from.
        out: the folder to create, or to continue.
        heldout: held-out text in place of the grid's own.
        tasks: folder of the files of tasks and probes; default: next to the grid.
        hours: budget of each cell in hours.
        tokens: in tokens.
        epochs: in readings of the text.
        steps: in steps.
        flops: in floating-point operations.
        field: field of JSON or column of Parquet that holds the text.
        target: for parallel text, the field of the target side.
        documents: what is one document in plain text: file, paragraph or line.
        errors: bytes that are not UTF-8: strict stops, replace replaces and counts.
        dry_run: prepare the data and forecast each cell from a few steps; train nothing.
        ray: trains and measures the cells on a Ray cluster, each with the `cpus` and `gpus` that
            the grid or the cell states: its address, `HOST:PORT` or `auto`, or `local` to start one
            on this machine. All machines must share the disk of `out` and of the tasks.
        progress: whether to show the progress, or what shows it.

    Raises:
        UserError: a mistake in the grid, or the folder holds something else.
    """
    reading = _arguments.given_reading(
        field=field, target=target, documents=documents, errors=errors
    )
    loaded = load_grid(
        str(grid if isinstance(grid, str) else _arguments.path(grid, "GRID")),
        [local(text) for text in _arguments.paths(data)],
        None if tasks is None else _arguments.path(tasks, "--tasks"),
        _arguments.budget_of(hours=hours, tokens=tokens, epochs=epochs, steps=steps, flops=flops),
        list(_arguments.paths(heldout, "--heldout")),
        reading,
    )
    if is_prepared(loaded.data) and reading:
        _arguments.refuse(reading, f"{loaded.data[0]} holds prepared text, which was read already")
    folder = _arguments.path(out, "--out")
    with on_cluster(ray) as cluster, progress_of(progress, announces=True) as display:
        comparison = Comparison(loaded, folder, ComparisonProgress(display))
        if cluster is not None:
            require_possible(comparison, cluster)
        comparison.prepare()
        with atomic.guarded(folder):
            results = gather(comparison)
            if dry_run:
                forecasts = forecast(comparison)
                notes = tables.forecast_notes(forecasts, results)
                return ComparisonResult(folder, False, results, tuple(notes), forecasts)
            for line in power_notes(results):
                display.note(line)

            def write() -> None:
                tables.write(gather(comparison))

            if cluster is None:
                is_done = comparison.run(write)
            else:
                is_done = run_on_cluster(comparison, cluster, write)
            results = gather(comparison)
            tables.write(results)
            notes = [*tables.notes(results), write_plot(results)]
    return ComparisonResult(folder, is_done, results, tuple(filter(None, notes)))


def _unique(columns: Sequence[str]) -> list[str]:
    """Return the columns, those of random weights with the column before, whose score it is."""
    pairs = zip(columns, ["", *columns], strict=False)
    return [
        f"{before}, {name}" if name in (tables.SCRATCH, RANDOM) else name for name, before in pairs
    ]


class ComparisonProgress:
    """Shows a comparison: each piece as a stage.

    Args:
        display: shows the progress.
    """

    def __init__(self, display: ProgressDisplay) -> None:
        self._display, self._work = display, ""
        self._advance: Callable[..., None] = lambda *_: None

    def note(self, text: str) -> None:
        """Show a line."""
        self._display.note(text)

    def warn(self, text: str) -> None:
        """Show a line, even where others are not wanted."""
        self._display.warn(text)

    def stage(self, name: str) -> Callable[..., None]:
        """Begin a stage before the work."""
        self._work = ""
        return self._display.stage(name)

    def show_progress(self, progress: CellProgress) -> None:
        """Show how far this piece is, with the time left of all."""
        work = f"{progress.number}/{progress.total}  {progress.piece}"
        least = "" if progress.is_all else "at least "
        left = f"{least}{rough(progress.seconds_left)} left in all" if progress.seconds_left else ""
        if work != self._work:
            self._work, self._advance = work, self._display.stage(work)
        self._advance(progress.share, 1.0, left, progress.note)
