"""`foreword drift`: what fine-tuning changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Quiet
from foreword.settings.ranges import CountOrZero


def drift(
    tuned: Annotated[
        list[Path],
        typer.Argument(metavar="TUNED...", help="Folders that 'foreword tune' wrote, of one run."),
    ],
    dev: Annotated[
        Path | None,
        typer.Option(help="Labelled text for the loss; default: what they were scored on."),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(help="The run they were tuned from; default: the one whose folder has them."),
    ] = None,
    examples: Annotated[
        CountOrZero, typer.Option(help="Number of examples, evenly spaced; 0 for all.")
    ] = 256,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Show what fine-tuning changed, and how flat the loss is around it.

    For each tuned model: how far the weights of each layer moved from where they started, how alike
    the states are, the loss on the straight line from start to end and past it, and the largest
    eigenvalue of the Hessian at the end. With two, the loss on the plane of the start and both: put
    a model tuned with --from-scratch beside the pretrained one to compare the basins.

    The figures are saved as drift-NAME.json in RUN/evaluations, the plot as drift-NAME.png.
    """
    from foreword.api.drift import drift as work
    from foreword.disk import atomic, stored
    from foreword.reports.drift import plot_drift

    result = work(tuned, dev, run, examples=examples, device=device, progress=not quiet)
    plot = plot_drift(result.content)
    content = dict(result.content)
    content["notes"] = [*content["notes"], *([plot.note] if plot.note else [])]
    file = result.folder / f"{content['name']}.json"
    atomic.write_text(file, stored.record(content))
    atomic.write_bytes(file.with_suffix(".png"), plot.data)
    if json:
        console.emit(content)
        return
    rows = content["rows"]
    console.table("", list(rows[0]), [list(row.values()) for row in rows])
    for note in content["notes"]:
        console.say(note)
    console.say(f"saved to {file} and .png")
