"""`foreword probe`: examine the inside of models, side by side."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Quiet
from foreword.cli._options import PathText
from foreword.cli._reading import Reading
from foreword.formatting import with_intervals

if TYPE_CHECKING:
    from foreword.api.probe import ProbeResult

Untrained = Annotated[
    bool, typer.Option("--untrained", help="Also measure each model with random weights.")
]


def probe(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    kind: Annotated[
        str, typer.Option(help="Probe: minimal_pairs, tagging, ...; 'foreword show probes'.")
    ],
    reading: Reading,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the probe: layer=0.")
    ] = None,
    data: Annotated[
        list[PathText] | None, typer.Option(help="Text to use; default: each run's held-out text.")
    ] = None,
    untrained: Untrained = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the result; default: RUN/evaluations.")
    ] = None,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Examine one or more models with a probe: one table and one plot for all.

    The figures are saved as probe-KIND.json, the plot as probe-KIND.png.
    """
    from foreword.api.probe import probe as work

    result = work(
        runs,
        kind,
        settings=settings or [],
        data=data,
        untrained=untrained,
        out=out,
        device=device,
        progress=not quiet,
        **asdict(reading),
    )
    show_probe(result, json=json)


def show_probe(result: ProbeResult, *, json: bool) -> None:
    """Print the result of a probe or a suite."""
    if json:
        console.emit(dict(result.content))
        return
    rows = [with_intervals(row) for row in result.rows]
    names = [name.replace("_", " ") for name in rows[0]]
    console.table("", names, [list(row.values()) for row in rows])
    for note in result.content["notes"]:
        console.say(note)
    for file in result.files:
        console.say(f"saved to {file} and .png")
