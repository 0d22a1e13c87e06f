"""Options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda or mps.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Work on a Ray cluster: HOST:PORT, auto, or local to start one on this machine.",
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option("--track", help="Also send the records to tensorboard or wandb; repeatable."),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Show no progress: only the result, warnings and errors.")
]
