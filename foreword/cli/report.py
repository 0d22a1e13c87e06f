"""`foreword report`: write a run or a comparison as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foreword.cli import console
from foreword.cli._model_options import Json


def report(
    run: Annotated[Path, typer.Argument(help="A run folder, or a folder of 'compare'.")],
    out: Annotated[Path | None, typer.Option(help="The page; default: RUN/report.html.")] = None,
    json: Json = False,
) -> None:
    """Write the report of a run or a comparison: one self-contained HTML page."""
    from foreword.report.comparison import is_comparison, write_comparison
    from foreword.report.page import write_page

    page = write_comparison(run, out) if is_comparison(run) else write_page(run, out)
    if json:
        console.emit({"page": str(page), "bytes": page.stat().st_size})
    else:
        console.say(f"{page}")
