"""`foreword generate`: how a text goes on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Run, open_model
from foreword.ranges import (
    Count,
    CountOrZero,
    LengthPenalty,
    PositiveShare,
    Seed,
    Temperature,
)

WHY = {
    "end": "the model ended it",
    "tokens": "as many tokens as were asked for",
    "places": "the model's positions end there",
}


def generate(
    run: Run,
    prompt: Annotated[str, typer.Argument(help="How the text begins, or what is to be answered.")],
    tokens: Annotated[Count, typer.Option(help="At most so many new tokens.")] = 100,
    temperature: Annotated[
        Temperature, typer.Option(help="0 takes the likeliest token always.")
    ] = 0.8,
    top_k: Annotated[
        CountOrZero, typer.Option(help="Draw from the k likeliest tokens; 0 for all.")
    ] = 50,
    top_p: Annotated[
        PositiveShare, typer.Option(help="Draw from the likeliest tokens up to p.")
    ] = 1.0,
    seed: Annotated[Seed, typer.Option(help="Equal seeds, equal texts.")] = 1,
    samples: Annotated[Count, typer.Option(help="How many texts.")] = 1,
    beams: Annotated[
        CountOrZero,
        typer.Option(help="Search for the likeliest text instead, with so many beams."),
    ] = 0,
    length_penalty: Annotated[
        LengthPenalty,
        typer.Option(help="With --beams: 0 prefers short texts, 1 ranks by the mean."),
    ] = 1.0,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Write how a text goes on, or the answer to a source."""
    from foreword.evaluate import beam, decoding
    from foreword.evaluate.sampling import Sampling

    prompted = open_model(run, device).trained
    if beams:
        how = beam.Beams(beams, length_penalty, tokens)
        found = beam.generate(prompted, [prompt], how, samples)
    else:
        sampling = Sampling(tokens, temperature, top_k, top_p, seed)
        found = decoding.generate(prompted, [prompt], sampling, samples)
    if json:
        console.emit([asdict(generation) for generation in found])
        return
    for n, generation in enumerate(found, 1):
        begun = generation.prompt if prompted.continues else ""
        console.out.print(begun + generation.text, markup=False)
        number = f"{n} of {len(found)}: " if len(found) > 1 else ""
        console.say(f"({number}{generation.tokens} tokens; {WHY[generation.stopped]})")
