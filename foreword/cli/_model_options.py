"""Options of the verbs that use a trained model, and how they open it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foreword.cli import console
from foreword.cli._run_guard import guard_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foreword.evaluation.loaded import LoadedModel

Run = Annotated[Path, typer.Argument(help="A run folder, or one of its checkpoints/step-*.")]
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


def open_model(run: Path, device: str) -> LoadedModel:
    """Open a run, and print what was skipped on the way.

    Raises:
        UserError: there is no such run or device.
    """
    from foreword.evaluation.loaded import load

    loaded = load(run, device)
    guard_run(loaded.trained.run)
    for note in loaded.trained.notes:
        console.say(note)
    return loaded


def say_unknown(loaded: LoadedModel, texts: Sequence[str]) -> None:
    """Say how many tokens of the texts the model cannot tell apart, if any."""
    ids = [i for text in texts for i in loaded.tokenizer.encode(text, special=True).tolist()]
    if count := ids.count(loaded.tokenizer.vocab.unknown):
        console.say(f"{count:,} of {len(ids):,} tokens of the text are [UNK]: unknown to the model")
