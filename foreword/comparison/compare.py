"""A comparison from its grid to its results: prepared, then forecast or trained, and written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from foreword.comparison import tables
from foreword.comparison.forecast import ComparisonForecast, forecast
from foreword.comparison.grid import Grid
from foreword.comparison.on_pool import require_possible, run_on_pool
from foreword.comparison.plot import write_plot
from foreword.comparison.power import power_notes
from foreword.comparison.results import Results, gather
from foreword.comparison.run import Comparison
from foreword.disk import atomic
from foreword.process.children import Pool
from foreword.runs.stages import ProgressReporter


@dataclass(frozen=True)
class Compared:
    """A comparison, as far as it is done.

    Attributes:
        is_done: whether all is done.
        results: all numbers.
        notes: how to read the tables, what failed and what is not done.
        forecast: the time and memory that each cell will take, if nothing was to be trained.
    """

    is_done: bool
    results: Results
    notes: tuple[str, ...]
    forecast: ComparisonForecast | None = None


def compare(
    grid: Grid,
    folder: Path,
    display: ProgressReporter,
    cluster: Pool | None,
    *,
    is_dry: bool,
    begin: Callable[[Results], None] = lambda results: None,
) -> Compared:
    """Train, or forecast, all cells, and write the results after each.

    Args:
        grid: the cells.
        folder: where the results are written.
        display: shows the progress.
        cluster: runs the jobs; None for this process.
        is_dry: whether to forecast alone.
        begin: called before anything is trained, with what was trained earlier.

    Raises:
        UserError: a cell is impossible, or the folder holds the results on another text.
    """
    comparison = Comparison(grid, folder, display)
    if cluster is not None:
        require_possible(comparison, cluster)
    comparison.require_same_text()
    comparison.prepare()
    with atomic.guarded(folder):
        results = gather(comparison)
        if is_dry:
            forecasts = forecast(comparison)
            notes = tables.forecast_notes(forecasts, results)
            return Compared(False, results, tuple(notes), forecasts)
        begin(results)
        for line in power_notes(results):
            display.note(line)

        def write() -> None:
            tables.write(gather(comparison))

        is_done = True
        if cluster is None:
            is_done = comparison.run(write)
        else:
            run_on_pool(comparison, cluster, write)
        results = gather(comparison)
        tables.write(results)
        notes = [*tables.notes(results), write_plot(results)]
    return Compared(is_done, results, tuple(filter(None, notes)))
