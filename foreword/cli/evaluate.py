"""`foreword evaluate`: the loss of a run on text it has not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Quiet, Run
from foreword.cli._options import PathText
from foreword.cli._reading import Reading
from foreword.ranges import Count, CountOrZero


def evaluate(
    run: Run,
    reading: Reading,
    data: Annotated[
        list[PathText] | None,
        typer.Option("--data", "--file", help="Text to use; default: the run's held-out text."),
    ] = None,
    rows: Annotated[
        Count | None, typer.Option(help="Maximum number of rows; default: all.")
    ] = None,
    streams: Annotated[
        CountOrZero, typer.Option(help="For models with a memory: 1 reads the text as one stream.")
    ] = 0,
    memory: Annotated[
        str | None,
        typer.Option(help="For causal models: loss by number of earlier tokens seen: 0,64,128."),
    ] = None,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure the held-out loss of a run, next to count-based baselines.

    The result is saved in RUN/evaluations, and `foreword report` shows it.
    """
    from foreword.api.evaluate import evaluate as work

    result = work(
        run,
        data,
        rows=rows,
        streams=streams,
        memory=memory,
        device=device,
        progress=not quiet,
        **asdict(reading),
    )
    documents = [result.content, *([] if result.by_order is None else [result.by_order])]
    if json:
        by_order = {} if result.by_order is None else {"by_order": result.by_order["rows"]}
        console.emit(dict(result.content) | by_order)
    else:
        _show(documents, result.file.parent)


def _show(results: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Print the results, and the components of the loss and notes of the first."""
    for saved in results:
        cells = [[_cell(key, value) for key, value in row.items()] for row in saved["rows"]]
        console.table("", [key.replace("_", " ") for key in saved["rows"][0]], cells)
        console.say(f"saved to {folder / saved['name']}.json")
    components = results[0].get("components", {})
    if components:
        console.say(
            ", ".join(f"{key.replace('_', ' ')} {components[key]:.4f}" for key in components)
        )
    for note in results[0]["notes"]:
        console.say(note)


def _cell(name: str, value: Any) -> Any:
    """Return a value for the table; perplexities are published with two decimals."""
    return f"{value:,.2f}" if name == "perplexity" and value is not None else value
