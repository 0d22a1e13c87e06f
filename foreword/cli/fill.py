"""`foreword fill`: what a model puts in the blanks of a text."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Run, open_model
from foreword.ranges import Count


def fill(
    run: Run,
    text: Annotated[str, typer.Argument(help='"The capital of France is [MASK]."')],
    top: Annotated[Count, typer.Option(help="Candidates to show for each blank.")] = 5,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Fill the blanks of a text, [MASK] or <extra_id_0> as T5 has them, likeliest first."""
    from rich.markup import escape

    found = open_model(run, device).fill(text, top)
    if json:
        blanks = [[asdict(candidate) for candidate in blank] for blank in found.blanks]
        console.emit({"text": found.text, "blanks": blanks})
        return
    console.out.print(found.text, markup=False)
    rows = [
        [n if rank == 0 else "", escape(candidate.text), f"{candidate.probability:.4f}"]
        for n, blank in enumerate(found.blanks, 1)
        for rank, candidate in enumerate(blank)
    ]
    console.table("", ["blank", "filling", "probability"], rows)
