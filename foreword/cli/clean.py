"""`foreword clean`: clean text before training, and say what was dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foreword.cli import console
from foreword.cli._model_options import Json, Quiet
from foreword.cli._options import PathText
from foreword.cli._process import INTERRUPTED
from foreword.cli._reading import Reading
from foreword.settings.ranges import Workers


def clean(
    sources: Annotated[
        list[PathText], typer.Argument(metavar="SOURCE...", help="Files, folders, globs.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to create, or to continue.")],
    reading: Reading,
    recipe: Annotated[
        str, typer.Option(help="Recipe of cleaning: gopher, c4, fineweb, copies, or a .toml file.")
    ] = "gopher",
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the recipe: clean.steps[1].min_words=30."),
    ] = None,
    workers: Annotated[
        Workers | None, typer.Option(help="Number of processes; 0, the default, for one per core.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    """Clean text: drop what is not prose, what repeats itself, duplicates, and more.

    DIR/texts is text for 'prepare' and 'pretrain'; the page DIR/clean.html shows what each step
    dropped and changed, with samples. Stopped at any moment, the same command continues.
    'foreword show gopher' prints a recipe, 'foreword show cleaning/steps' lists the steps.
    Requires the extra data: pip install 'foreword[data]'.
    """
    from foreword.api.clean import clean as work

    reading.refuse_target("parallel text cannot be cleaned; clean each side apart")
    try:
        result = work(
            sources,
            out,
            recipe=recipe,
            settings=assign or (),
            workers=workers,
            field=reading.field,
            documents=reading.documents,
            errors=reading.errors,
            progress=not quiet,
        )
    except KeyboardInterrupt:
        console.say(f"stopped; the same command continues in {out}")
        return INTERRUPTED
    if as_json:
        console.emit({"texts": str(result.texts), "reused": result.reused, **result.report})
        return 0
    rows = result._rows()
    console.table("", list(rows[0]), [list(row.values()) for row in rows])
    for note in result.notes:
        console.say(note)
    state = "unchanged, reused" if result.reused else "written"
    console.facts({"texts": f"{result.texts} ({state})", "page": str(result.page)})
    return 0
