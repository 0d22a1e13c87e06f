"""`foreword export`: a run as a folder that others' software reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from foreword.cli import console
from foreword.cli._looking import Json, Run


def export(
    run: Run,
    out: Annotated[Path, typer.Option("--out", help="The folder to make.")],
    format: Annotated[Literal["hf"], typer.Option(help="hf: of Hugging Face.")] = "hf",  # noqa: A002
    family: Annotated[str, typer.Option(help="bert, gpt2, ...; the one that fits if unsaid.")] = "",
    json: Json = False,
) -> None:
    """Export a run for Hugging Face's transformers.

    AutoModel and AutoTokenizer read the folder without code of ours; `foreword import` makes the
    same run of it again.
    """
    from foreword.train import exported as exporting
    from foreword.train.opened import open_run

    opened = open_run(run, "cpu")
    for note in opened.notes:
        console.say(note)
    found = exporting.export(opened, out, family)
    difference = exporting.check(opened, out, found)
    facts = {"folder": str(out), "architecture": found.architecture_of(opened.recipe), **difference}
    if json:
        console.emit(facts)
        return
    console.facts({key: value for key, value in facts.items() if value is not None})
    if difference["logit_difference"] is None:
        console.say("not checked against transformers, which is not installed")
