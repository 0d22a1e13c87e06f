"""`foreword import`: turn a model made elsewhere into a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foreword.cli import console
from foreword.cli._model_options import Json
from foreword.cli._options import PathText
from foreword.cli.export import open_format


def import_(
    model: Annotated[
        PathText, typer.Argument(help="Folder or file of a model; with --download, its hub name.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Run folder to create.")],
    format: Annotated[  # noqa: A002
        str, typer.Option(help="hf (Hugging Face), arpa (n-grams) or word2vec (word vectors).")
    ] = "hf",
    download: Annotated[
        bool, typer.Option("--download", help="With hf: download the model from the hub.")
    ] = False,
    json: Json = False,
) -> None:
    """Import a model made elsewhere as a run folder.

    No code in it is run and nothing is skipped: an unknown setting or tensor is refused by name.
    hf ends with a check of the logits if transformers is installed.
    """
    from foreword.runs.run import require_free

    importer = open_format(format, download=download)
    require_free(out)
    imported = importer.read(model, out)
    for note in imported.notes:
        console.say(note)
    if json:
        console.emit({**imported.facts, "notes": list(imported.notes)})
    else:
        console.facts({key: value for key, value in imported.facts.items() if value is not None})
