"""`foreword import`: a model made elsewhere becomes a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foreword.cli import console
from foreword.cli._model_options import Json
from foreword.cli.export import open_format


def import_(
    model: Annotated[
        str, typer.Argument(help="A model's folder or file; with --download, a hub's name.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The run folder to make.")],
    format: Annotated[  # noqa: A002
        str, typer.Option(help="hf (Hugging Face), arpa (n-grams), word2vec (vectors of words).")
    ] = "hf",
    download: Annotated[
        bool, typer.Option("--download", help="Of hf: fetch the model from the hub.")
    ] = False,
    json: Json = False,
) -> None:
    """Import a model made elsewhere as a run folder.

    Nothing in it is run and nothing is passed over: what is not known here is refused by its name.
    hf ends with a check of the logits, where transformers is installed.
    """
    from foreword.runs.run import require_free

    wanted = open_format(format, download=download)
    require_free(out)
    found = wanted.read(model, out)
    for note in found.notes:
        console.say(note)
    if json:
        console.emit({**found.facts, "notes": list(found.notes)})
    else:
        console.facts({key: value for key, value in found.facts.items() if value is not None})
