"""`foreword compare`: recipes against each other at one budget, with seeds and intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._bar import Advance, Bar, clock
from foreword.cli._model_options import Json
from foreword.cli._reading import Reading
from foreword.ranges import Count, EpochsOfText, Flops, Hours, TokensOfText

if TYPE_CHECKING:
    from foreword.compare.run import CellProgress, Comparison


def compare(
    grid: Annotated[str, typer.Argument(help="A grid's name (objectives) or a .toml file.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to make or to carry on with.")],
    reading: Reading,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="Text, in the place of the grid's own; or a prepared folder."),
    ] = None,
    heldout: Annotated[
        list[str] | None,
        typer.Option("--heldout", help="Text to hold out, in the place of the grid's own."),
    ] = None,
    tasks: Annotated[
        Path | None, typer.Option(help="Where the tasks' files lie; beside the grid if unsaid.")
    ] = None,
    hours: Annotated[Hours | None, typer.Option(help="Budget of each cell in hours.")] = None,
    tokens: Annotated[
        TokensOfText | None, typer.Option(help="Budget of each cell in tokens.")
    ] = None,
    epochs: Annotated[
        EpochsOfText | None, typer.Option(help="Budget of each cell in epochs.")
    ] = None,
    steps: Annotated[Count | None, typer.Option(help="Budget of each cell in steps.")] = None,
    flops: Annotated[Flops | None, typer.Option(help="Budget of each cell in FLOPs.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Prepare the data, say what it takes, train nothing.")
    ] = False,
    json: Json = False,
) -> int:
    """Train each cell of a grid at one budget, fine-tune it, and put all into one table.

    Kill it at any moment; the same command carries on. What a changed grid has in common with what
    was done before is not done again. A cell that fails is reported, and the others go on.
    """
    from foreword.cli._progress import budget_of
    from foreword.compare.grid import load_grid
    from foreword.compare.run import Comparison
    from foreword.runs.corpus import is_prepared

    budget = budget_of(hours, tokens, steps, flops, epochs)
    loaded = load_grid(grid, data or [], tasks, budget, heldout or [], reading.said)
    if is_prepared(loaded.data):
        reading.refuse(f"{loaded.data[0]} holds text that is read already")
    try:
        with console.progress() as bar:
            look = _ComparisonDisplay(bar)
            comparison = Comparison(loaded, out, look)
            comparison.prepare()
            if dry_run:
                return _forecast(comparison, as_json=json)
            is_done = comparison.run(lambda: _write(comparison))
    except KeyboardInterrupt:
        is_done = False
    if not is_done:
        console.say(f"stopped; the same command carries on in {out}")
        return 130
    return _show(comparison, as_json=json)


class _ComparisonDisplay:
    """A bar for a person who watches; else a line a minute."""

    def __init__(self, bar: Bar) -> None:
        self._bar, self._work = bar, ""
        self._advance: Advance = lambda *_: None

    def note(self, text: str) -> None:
        """A line worth reading."""
        console.say(text)

    def stage(self, name: str) -> Callable[[float, float], None]:
        """The bar is of what is going on before the work."""
        from foreword.runs.corpus import TRAINING

        if name == TRAINING:  # `stands` says of what
            return lambda done, total: None
        self._work = ""
        return self._bar.stage(name, is_said=True)

    def stands(self, standing: CellProgress) -> None:
        """The bar is of this piece, its note of all."""
        work = f"{standing.number}/{standing.total}  {standing.work}"
        least = "" if standing.is_all else "at least "
        left = f"in all {least}{clock(standing.seconds_left)} left"
        if work != self._work:
            self._work, self._advance = work, self._bar.stage(work, is_said=True)
        self._advance(standing.share, 1.0, left, standing.note)


def _write(comparison: Comparison) -> None:
    from foreword.compare.results import gather
    from foreword.compare.tables import write

    write(gather(comparison))


def _show(comparison: Comparison, *, as_json: bool) -> int:
    """Writes and prints everything; the exit status says whether all of it could be done."""
    from foreword.compare import tables
    from foreword.compare.plot import write_plot
    from foreword.compare.results import gather

    results = gather(comparison)
    tables.write(results)
    write_plot(results)
    if as_json:
        console.emit(tables.as_document(results))
    else:
        for table in tables.tables(results):
            console.table(table.title, table.columns, [_plain(row) for row in table.rows])
        for note in tables.notes(results):
            console.say(note)
        names = ("table.md", "results.csv", "results.json", "plot.png")
        console.say("  ".join(str(comparison.out / name) for name in names))
    if not comparison.failures:
        return 0
    return 1 if any(failure.is_fault for failure in comparison.failures) else 2


def _forecast(comparison: Comparison, *, as_json: bool) -> int:
    from foreword.compare.forecast import forecast
    from foreword.formatting import duration, power, quantity

    found = []
    for cell in comparison.grid.cells:
        comparison.look.stage(f"taking a few steps: {cell.name}")
        found.append(forecast(comparison, cell))
    seeds = comparison.grid.seeds
    seconds = sum(seeds * f.pretraining_seconds + f.tuning_seconds for f in found)
    if as_json:
        cells: list[dict[str, Any]] = [asdict(f) for f in found]
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
            for f in found
        ]
        console.table("", [*columns, "pretraining", "fine-tuning, about"], rows)
        least = "at least" if any(f.note for f in found) else "about"
        console.say(f"{len(comparison.work())} pieces, {least} {duration(seconds)} in all")
    return 2 if any(f.error for f in found) else 0


def _plain(row: Any) -> list[str]:
    """Cells as they are: `[MASK]` is no markup."""
    from rich.markup import escape

    return [escape(cell) for cell in row]
