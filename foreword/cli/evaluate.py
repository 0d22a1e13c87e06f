"""`foreword evaluate`: the loss of a run on text it has not seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Run, open_model
from foreword.cli._options import PathText
from foreword.cli._reading import Reading
from foreword.ranges import Count, CountOrZero

if TYPE_CHECKING:
    from foreword.data.prepared_text import PreparedText
    from foreword.data.shards import Shards
    from foreword.evaluate.context import MemoryLoss
    from foreword.evaluate.heldout import HeldOut
    from foreword.evaluate.prompting import PromptedModel
    from foreword.runs.corpus import Stage


def evaluate(
    run: Run,
    reading: Reading,
    file: Annotated[
        list[PathText] | None,
        typer.Option("--file", "--data", help="Text to use; default: the run's held-out text."),
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
    json: Json = False,
) -> None:
    """Measure the held-out loss of a run, next to count-based baselines.

    The result is saved in RUN/evaluations, and `foreword report` shows it.
    """
    from foreword import atomic
    from foreword.evaluate import context, heldout, sparsity

    if not file:
        reading.refuse("requires --data")

    # Open the text once, measure the loss, and see what a count-based model knows of each order.
    loaded = open_model(run, device)
    prompted = reading.of(loaded.trained)
    folder, most = loaded.trained.run, rows or heldout.ALL
    memories = None if memory is None else _numbers(memory)
    by_order = []
    atomic.require_writable(folder / "evaluations", is_folder=True)
    with console.progress() as bar, _opened(prompted, folder, file, bar.stage) as (text, shards):
        found: Sequence[HeldOut | MemoryLoss]
        if memories is not None:
            bar.stage("measuring the loss")
            found = context.by_memory(prompted, shards[0], memories, shards[1], most)
        elif text is None:
            found = heldout.on_shards(prompted, shards, most, streams, bar.stage)
        else:
            found = heldout.on_prepared(prompted, text, most, streams, bar.stage)
        if prompted.is_count_based and memories is None:
            bar.stage("counting n-grams")
            by_order = [one.as_row() for one in sparsity.by_order(prompted, shards[0])]

    # Save the results.
    name = f"evaluate-{Path(file[0]).name if file else 'heldout'}"
    name += "-memory" if memories is not None else ""
    result = _result(name, loaded.trained.folder.name, found, by_memory=memories is not None)
    results = [_save(folder, result)]
    if by_order:
        changes = {"name": f"{name}-by-order", "task": "n-grams seen and never seen"}
        results.append(_save(folder, {**result, **changes, "rows": by_order, "notes": []}))

    # Print it.
    if json:
        console.emit(results[0] | ({"by_order": results[1]["rows"]} if results[1:] else {}))
        return
    _show(results, folder)


def _result(
    name: str, checkpoint: str, losses: Sequence[HeldOut | MemoryLoss], *, by_memory: bool
) -> dict[str, Any]:
    """Return the result that is saved."""
    from foreword.runs.provenance import command

    result: dict[str, Any] = {
        "name": name,
        "task": "held-out loss by memory" if by_memory else "held-out loss",
        "checkpoint": checkpoint,
        "rows": [one.as_row() for one in losses],
        "command": command(),
    }
    components = getattr(losses[0], "components", {})
    if components:
        result["components"] = components
    return result | {"notes": _notes(losses)}


def _show(results: Sequence[dict[str, Any]], folder: Path) -> None:
    """Print the results, and the components of the loss and notes of the first."""
    for saved in results:
        cells = [[_cell(key, value) for key, value in row.items()] for row in saved["rows"]]
        console.table("", [key.replace("_", " ") for key in saved["rows"][0]], cells)
        console.say(f"saved to {folder / 'evaluations' / saved['name']}.json")
    components = results[0].get("components", {})
    if components:
        console.say(
            ", ".join(f"{key.replace('_', ' ')} {components[key]:.4f}" for key in components)
        )
    for note in results[0]["notes"]:
        console.say(note)


def _notes(found: Sequence[HeldOut | MemoryLoss]) -> list[str]:
    """Return remarks on the figures, a line each."""
    from foreword.formatting import unknown_share_note

    notes = []
    if found[0].unknown:
        notes.append(unknown_share_note(found[0].unknown))
    if any(one.as_row()["loss"] is None for one in found):
        notes.append("the model gives some of the text probability 0: its loss is infinite")
    return notes


def _cell(name: str, value: Any) -> Any:
    """Return a value as a table shows it; perplexities are published with two decimals."""
    if value is None:
        return "-"
    return f"{value:,.2f}" if name == "perplexity" else value


def _save(run: Path, result: dict[str, Any]) -> dict[str, Any]:
    """Write a result into the run's `evaluations`."""
    from foreword import atomic, stored

    path = run / "evaluations" / f"{result['name']}.json"
    atomic.write_text(path, stored.to_json(result, indent=1) + "\n")
    return result


@contextmanager
def _opened(
    prompted: PromptedModel, run: Path, file: list[str] | None, stage: Stage
) -> Iterator[tuple[PreparedText | None, tuple[Shards, float]]]:
    """Yield the run's text if no other is named, and the shards with their bytes per token."""
    from foreword.evaluate import heldout

    if file:
        with heldout.shards_of_texts(prompted, file, console.say, stage) as shards:
            yield None, shards
    else:
        text = heldout.shards_of(prompted, run)
        yield text, (text.heldout, text.bytes_per_token(ends=prompted.recipe.ends_texts))


def _numbers(text: str) -> list[int]:
    """Return `0,64,128` as numbers, each once."""
    from foreword.errors import UserError

    try:
        return list(dict.fromkeys(int(word) for word in text.split(",")))
    except ValueError:
        raise UserError(f"--memory {text}: expected numbers of tokens, such as 0,64,128") from None
