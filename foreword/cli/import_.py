"""`foreword import`: a model made elsewhere becomes a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from foreword.cli import console
from foreword.cli._looking import Json


def import_(
    model: Annotated[str, typer.Argument(help="A model folder; with --download, a hub's name.")],
    out: Annotated[Path, typer.Option("--out", help="The run folder to make.")],
    format: Annotated[Literal["hf"], typer.Option(help="hf: of Hugging Face.")] = "hf",  # noqa: A002
    download: Annotated[
        bool, typer.Option("--download", help="Fetch the model from the Hugging Face hub.")
    ] = False,
    json: Json = False,
) -> None:
    """Import a model of Hugging Face's transformers as a run folder.

    Nothing in it is run and nothing is passed over: a setting or a tensor that is not known here is
    refused by its name. Ends with a check of the logits, where transformers is installed.
    """
    from foreword.errors import UserError
    from foreword.train import imported as importing
    from foreword.train.run import require_free

    require_free(out)
    folder = _download(model) if download else Path(model)
    if not folder.is_dir() and not download:
        raise UserError(f"{model}: no such folder; a name on the hub needs --download")
    found = importing.read(folder)
    for note in found.notes:
        console.say(note)
    check = importing.check(found)
    importing.save(found, out)
    facts: dict[str, Any] = {
        "run": str(out),
        "family": found.recipe.description,
        "parameters": found.model.count_parameters(),
        "vocabulary": found.vocab.size,
        **check,
    }
    if json:
        console.emit(facts | {"notes": list(found.notes)})
        return
    console.facts({key: value for key, value in facts.items() if value is not None})
    if check["logit_difference"] is None:
        console.say("not checked against transformers, which is not installed")


def _download(name: str) -> Path:
    """A folder with the files of a model on the hub."""
    from foreword.errors import UserError

    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise UserError("--download needs: pip install 'foreword[hf]'") from error
    wanted = ["*.json", "*.safetensors", "*.txt", "*.model"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # of the network, of the hub, of the name
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"{name}: cannot be downloaded: {reason}") from error
