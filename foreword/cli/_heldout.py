"""The option `--heldout`: a share of the documents, or text given apart."""

from __future__ import annotations

from typing import Annotated

import typer

from foreword.cli._options import PathText

HeldOut = Annotated[
    list[PathText] | None,
    typer.Option(
        "--heldout",
        metavar="SHARE|TEXT",
        help="Text never trained on: a share of the documents, or files, folders, globs.",
    ),
]
