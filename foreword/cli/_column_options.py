"""The options of the verbs that read rows for a fine-tuned model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from foreword.cli._options import Options
from foreword.settings.ranges import Share


@dataclass(frozen=True)
class ColumnOptions(Options):
    """Which columns of the file hold what."""

    text: Annotated[
        str | None,
        typer.Option(
            help="Column of the text; a number from 0 if the file has no header; default: as tuned."
        ),
    ] = None
    pair: Annotated[
        str | None, typer.Option(help="Column of a second text; default: as tuned.")
    ] = None
    columns: Annotated[
        str, typer.Option(help="Names of all columns, a,b,c, if the file has no header.")
    ] = ""
    bad_rows: Annotated[
        Share | None,
        typer.Option(
            help="Share of a file's rows that may be wrong: they are counted and named, more are "
            "refused; default: as tuned, or 0.01."
        ),
    ] = None
    prefix: Annotated[
        str | None, typer.Option(help="Task prefix; default: the one it was tuned with.")
    ] = None


@dataclass(frozen=True)
class LabelledColumnOptions(ColumnOptions):
    """Which columns of a file of labelled examples hold what."""

    label: Annotated[str | None, typer.Option(help="Column of the label; default: as tuned.")] = (
        None
    )
