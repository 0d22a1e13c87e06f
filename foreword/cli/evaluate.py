"""`foreword evaluate`: the loss of a run, or its answers to a suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Quiet
from foreword.cli._options import PathText
from foreword.cli._reading import Reading
from foreword.cli.probe import Untrained, show_probe
from foreword.disk.stored import to_json
from foreword.errors import UserError
from foreword.settings.ranges import Count, CountOrZero


def evaluate(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="A run folder, or one of its checkpoints/step-*.",
        ),
    ],
    reading: Reading,
    data: Annotated[
        list[PathText] | None,
        typer.Option(
            "--data",
            "--file",
            help="Text to use; default: the run's held-out text. With --suite: its questions.",
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(help="Ask questions: cloze, blimp, lambada, in_context, ..."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="With --suite, a setting of it: limit=100.")
    ] = None,
    untrained: Untrained = False,
    out: Annotated[
        Path | None,
        typer.Option(help="With --suite: folder for the result; default: RUN/evaluations."),
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
    """Measure the held-out loss of a run, next to count-based baselines; or ask it a suite.

    A suite asks one or more runs the same questions, and compares the first with the others. The
    result is saved in RUN/evaluations, with every answer of a suite, and 'foreword report' shows
    it.
    """
    from foreword.tuning.predictor import is_tuned

    for each in runs:
        if each.is_file():
            raise UserError(f"{each}: a file, not a run folder; give it as --data {each}")
        if suite is None and is_tuned(each):
            raise UserError(
                f"{each}: a fine-tuned model; 'foreword evaluate-tuned {each}' scores it"
            )
    if suite is not None:
        why = "is for the loss, not for --suite"
        refused = {"rows": rows, "streams": streams or None, "memory": memory}
        for name, value in refused.items():
            if value is not None:
                raise UserError(f"--{name}: {why}")
        reading.refuse(why)
        files = data or []
        if len(files) > 1:
            raise UserError("--data: with --suite, one file, folder or pattern")
        assign = [*(settings or []), *(f"files={to_json(str(file))}" for file in files)]
        _ask(runs, suite, assign, out, untrained=untrained, device=device, quiet=quiet, json=json)
        return
    for option, is_given in (("set", settings), ("untrained", untrained), ("out", out)):
        if is_given:
            raise UserError(f"--{option}: requires --suite")
    if len(runs) > 1:
        raise UserError(f"{runs[1]}: the loss is measured run by run; several need --suite")
    from foreword.api.evaluate import evaluate as work

    result = work(
        runs[0],
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


def _ask(
    runs: Sequence[Path],
    name: str,
    settings: Sequence[str],
    out: Path | None,
    *,
    untrained: bool,
    device: str,
    quiet: bool,
    json: bool,
) -> None:
    """Ask models the questions of a suite, and print the result."""
    from foreword.api.probe import measure, suite
    from foreword.api.progress import progress_of

    result = measure(
        [str(run) for run in runs],
        suite(name, settings),
        display=progress_of(not quiet),
        untrained=untrained,
        out=out,
        device=device,
        prefix="suite",
    )
    show_probe(result, json=json)


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
