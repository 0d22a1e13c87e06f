"""`foreword compare`: compare recipes at one budget, with seeds and confidence intervals."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._budget_options import BudgetOptions
from foreword.cli._model_options import Json, Quiet
from foreword.cli._options import Options, PathText
from foreword.cli._reading import Reading

if TYPE_CHECKING:
    from foreword.comparison.run import Comparison


@dataclass(frozen=True)
class GridOptions(Options):
    """The text and the tasks of a grid."""

    data: Annotated[
        list[PathText] | None,
        typer.Option("--data", help="Text to replace the grid's own; or a prepared folder."),
    ] = None
    heldout: Annotated[
        list[PathText] | None,
        typer.Option("--heldout", help="Held-out text to replace the grid's own."),
    ] = None
    tasks: Annotated[
        Path | None, typer.Option(help="Folder of the tasks' files; default: beside the grid.")
    ] = None


def compare(
    grid: Annotated[str, typer.Argument(help="A grid's name (objectives) or a .toml file.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to create, or to continue.")],
    options: GridOptions,
    budget: BudgetOptions,
    reading: Reading,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Prepare the data and estimate; train nothing.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Train each cell of a grid at one budget, fine-tune it, and tabulate the results.

    Kill it at any moment; the same command continues. What a changed grid has in common with
    earlier work is not done again. A cell that fails is reported, and the others go on.
    """
    from foreword.api.compare import ComparisonProgress
    from foreword.api.progress import progress_of
    from foreword.cli._run_guard import guard_run
    from foreword.comparison.grid import load_grid
    from foreword.comparison.run import Comparison
    from foreword.runs.corpus import is_prepared

    loaded = load_grid(
        grid,
        options.data or [],
        options.tasks,
        budget.resolve(),
        options.heldout or [],
        reading.overrides,
    )
    if is_prepared(loaded.data):
        reading.refuse(f"{loaded.data[0]} holds prepared text, which was read already")
    try:
        with progress_of(not quiet, announces=True) as shown:
            comparison = Comparison(loaded, out, ComparisonProgress(shown))
            comparison.prepare()
            guard_run(out)
            if dry_run:
                return _forecast(comparison, as_json=json)
            is_done = comparison.run(lambda: _write(comparison))
    except KeyboardInterrupt:
        is_done = False
    if not is_done:
        console.say(f"stopped; the same command continues in {out}")
        return 130
    return _show(comparison, as_json=json)


def _write(comparison: Comparison) -> None:
    from foreword.comparison.results import gather
    from foreword.comparison.tables import write

    write(gather(comparison))


def _show(comparison: Comparison, *, as_json: bool) -> int:
    """Write and print all results; return the exit status, 0 if no cell failed."""
    from foreword.comparison import tables
    from foreword.comparison.plot import write_plot
    from foreword.comparison.results import gather

    results = gather(comparison)
    tables.write(results)
    undrawn = write_plot(results)
    if as_json:
        console.emit(tables.as_document(results))
    else:
        for table in tables.tables(results):
            console.table(table.title, table.columns, [_plain(row) for row in table.rows])
        for note in (*tables.notes(results), undrawn):
            if note:
                console.say(note)
        names = ("table.md", "results.csv", "results.json", "plot.png")
        console.say("  ".join(str(comparison.out / name) for name in names))
    if not comparison.failures:
        return 0
    return 1 if any(failure.is_fault for failure in comparison.failures) else 2


def _forecast(comparison: Comparison, *, as_json: bool) -> int:
    from foreword.comparison.forecast import forecast
    from foreword.formatting import duration, power, quantity

    forecasts = []
    for cell in comparison.grid.cells:
        comparison.reporter.stage(f"taking a few steps: {cell.name}")
        forecasts.append(forecast(comparison, cell))
    seeds = comparison.grid.seeds
    seconds = sum(seeds * f.pretraining_seconds + f.tuning_seconds for f in forecasts)
    if as_json:
        cells: list[dict[str, Any]] = [asdict(f) for f in forecasts]
        console.emit({"cells": cells, "seconds": seconds, "seeds": seeds})
    else:
        columns = ("cell", "parameters", "FLOPs/token", "tokens", "epochs", "memory")
        rows = [
            _plain([f.cell, f.error or f.note, *[""] * 6])
            if f.error or f.note
            else [
                f.cell,
                quantity(f.parameters),
                power(f.flops_per_token),
                quantity(f.tokens),
                f"{f.epochs:.2f}",
                f"{f.bytes / 1e9:.1f} GB",
                duration(f.pretraining_seconds),
                duration(f.tuning_seconds),
            ]
            for f in forecasts
        ]
        console.table("", [*columns, "pretraining", "fine-tuning, about"], rows)
        least = "at least" if any(f.note for f in forecasts) else "about"
        console.say(f"{len(comparison.work())} pieces, {least} {duration(seconds)} in total")
    return 2 if any(f.error for f in forecasts) else 0


def _plain(row: Any) -> list[str]:
    """Return the cells with markup escaped, so that `[MASK]` is printed."""
    from rich.markup import escape

    return [escape(cell) for cell in row]
