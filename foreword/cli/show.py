"""`foreword show`: list kinds, families, recipes and grids, or show one in full."""

from __future__ import annotations

from typing import Annotated

import typer

from foreword.cli import console
from foreword.cli._model_options import Json


def show(
    what: Annotated[
        str | None,
        typer.Argument(
            help="kinds, families, recipes, grids, suites, cleaning; a folder of kinds "
            "(objectives, positions); a kind (masked, rotary); a section (train, tune); a family "
            "(BERT); a dial (encoder); the name or file of a recipe. Default: what there is to "
            "show."
        ),
    ] = None,
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of a recipe: model.layers=6.")
    ] = None,
    json: Json = False,
) -> None:
    """List kinds, families, recipes, grids or suites, or show one of them.

    A kind's page says what each setting means, its default, its range, and where it is used.
    """
    from foreword.api import show as pages

    page = pages.show(what, assign or ())
    if json:
        console.emit(page.data)
    else:
        page.draw()
