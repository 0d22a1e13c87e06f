"""`foreword fill`: fill the blanks of a text."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Run, open_model, say_unknown
from foreword.formatting import probability
from foreword.ranges import Count


def fill(
    run: Run,
    text: Annotated[str, typer.Argument(help='"The capital of France is [MASK]."')],
    top: Annotated[Count, typer.Option(help="Candidates to show per blank.")] = 5,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Fill the blanks of a text, [MASK] or T5's <extra_id_0>, and show the likeliest candidates."""
    loaded = open_model(run, device)
    filled = loaded.fill(text, top)
    say_unknown(loaded, [text])
    if json:
        blanks = [[asdict(candidate) for candidate in blank] for blank in filled.blanks]
        console.emit({"text": filled.text, "blanks": blanks})
        return
    console.out.print(filled.text, markup=False)
    rows = [
        [n if rank == 0 else "", candidate.text, probability(candidate.probability)]
        for n, blank in enumerate(filled.blanks, 1)
        for rank, candidate in enumerate(blank)
    ]
    console.table("", ["blank", "filling", "probability"], rows)
