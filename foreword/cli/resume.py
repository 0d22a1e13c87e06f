"""`foreword resume`: continue a run that was stopped or killed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foreword.cli._launch import Processes, launch, starts_others
from foreword.cli._model_options import Json, Quiet, Track


def resume(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    assign: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting of optimizer.* or parallel.*, or train.clip: optimizer.lr=1e-4.",
        ),
    ] = None,
    processes: Processes = 1,
    track: Track = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Continue a run from its newest complete checkpoint.

    With a budget in steps, epochs, tokens or FLOPs it ends as if it had never been stopped, bit for
    bit on the CPU. With a budget in hours it uses the hours that are left; the learning rate then
    follows the clock, so no two such runs are equal.

    A run that stopped because its loss was no longer finite may continue with a lower learning
    rate: --set changes the recipe, and run.json records it.

    The number of processes may differ from that before: the same rows are read in the same order.
    """
    if starts_others(processes):
        return launch(processes, run)
    from foreword.api import pretrain
    from foreword.cli._finished import finish

    def resumed() -> pretrain.PretrainingResult:
        return pretrain.resume(run, settings=assign or (), track=track or (), progress=not quiet)

    return finish(run, resumed, as_json=json)
