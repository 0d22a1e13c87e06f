"""`foreword resume`: carries on with a run that was stopped or killed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def resume(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", help="optimizer.lr=1e-4, ...; of optimizer.*, and train.clip."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Carry on with a run from its newest whole checkpoint.

    With a budget in steps, epochs, tokens or FLOPs it ends as if it had never been stopped, bit for
    bit on the CPU. With one in hours it goes on with the hours that are left; the learning rate
    follows the clock then, and no two such runs are equal.

    A run that stopped because its loss was no longer finite may go on with a lower learning rate;
    the recipe is changed, and run.json says so.
    """
    from foreword.cli._progress import carry_on
    from foreword.runs.override import override

    if assign:
        override(run, assign)
    return carry_on(run, as_json=json)
