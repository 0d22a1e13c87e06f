"""`foreword compare`: compare recipes at one budget, with seeds and confidence intervals."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foreword.cli import console
from foreword.cli._budget_options import BudgetOptions
from foreword.cli._model_options import Json, Quiet, Ray
from foreword.cli._options import Options, PathText
from foreword.cli._process import INTERRUPTED
from foreword.cli._reading import Reading

if TYPE_CHECKING:
    from foreword.api.compare import ComparisonResult


@dataclass(frozen=True)
class GridOptions(Options):
    """The text and the tasks of a grid."""

    data: Annotated[
        list[PathText] | None,
        typer.Option(
            "--data",
            help="Text to replace the grid's own; or a prepared folder; of cells with "
            "data.sources, the folder that their paths start from.",
        ),
    ] = None
    heldout: Annotated[
        list[PathText] | None,
        typer.Option("--heldout", help="Held-out text to replace the grid's own."),
    ] = None
    tasks: Annotated[
        Path | None,
        typer.Option(help="Folder of the files of tasks and probes; default: next to the grid."),
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
    ray: Ray = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Train each cell of a grid at one budget, fine-tune it, and tabulate the results.

    Kill it at any moment; the same command continues. What a changed grid has in common with
    earlier work is not done again. A cell that fails is reported, and the others go on.
    """
    from foreword.api.compare import compare as work

    try:
        result = work(
            grid,
            **asdict(options),
            **asdict(budget),
            **asdict(reading),
            out=out,
            dry_run=dry_run,
            ray=ray,
            progress=not quiet,
        )
    except KeyboardInterrupt:
        return _say_stopped(out)
    if result.exit_status == INTERRUPTED:
        return _say_stopped(out)
    if json:
        console.emit(result.as_json())
    else:
        _show(result)
    return result.exit_status


def _say_stopped(out: Path) -> int:
    console.say(f"stopped; the same command continues in {out}")
    return INTERRUPTED


def _show(result: ComparisonResult) -> None:
    for table in result.markdown:
        console.table(table.title, table.columns, table.rows)
    for note in result.notes:
        console.say(note)
    if result.forecast is None:
        names = ("table.md", "results.csv", "results.json", "plot.png")
        console.say("  ".join(str(result.out / name) for name in names))
