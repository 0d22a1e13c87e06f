"""`foreword evaluate`: a run's loss on text it has not seen."""

from __future__ import annotations

import json as jsons
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foreword.cli import console
from foreword.cli._looking import Device, Json, Run, open_model

if TYPE_CHECKING:
    from foreword.evaluate.context import ByMemory
    from foreword.evaluate.subject import Subject


def evaluate(
    run: Run,
    file: Annotated[
        list[str] | None, typer.Option(help="Other text than the run's held-out one.")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="At most so many rows; all if unsaid.")] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="Of causal models: the loss by the tokens seen before: 0,64,128."),
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure the held-out loss of a run, beside what counting words reaches.

    The result is kept in RUN/evaluations, and `foreword report` shows it.
    """
    from foreword import atomic
    from foreword.errors import UserError
    from foreword.evaluate import context, heldout

    if rows is not None and rows < 1:
        raise UserError(f"--rows: must be at least 1, got {rows}")
    loaded = open_model(run, device)
    folder, most = loaded.opened.run, rows or heldout.ALL
    with console.progress("measuring") as bar:
        bar.add_task("measuring", total=None, note="")
        found: Sequence[heldout.HeldOut | context.ByMemory]
        if memory is not None:
            found = _by_memory(loaded.subject, folder, file, _numbers(memory), most)
        elif file:
            found = heldout.on_texts(loaded.subject, file, most)
        else:
            found = heldout.on_run(loaded.subject, folder, most)
    name = f"evaluate-{Path(file[0]).name if file else 'heldout'}"
    if memory is not None:
        name += "-memory"
    result = {
        "name": name,
        "task": "held-out loss" if memory is None else "held-out loss by memory",
        "checkpoint": loaded.opened.checkpoint.name,
        "rows": [one.as_row() for one in found],
        "command": " ".join(["foreword", *sys.argv[1:]]),
    }
    path = folder / "evaluations" / f"{name}.json"
    atomic.write_text(path, jsons.dumps(result, indent=1, ensure_ascii=False) + "\n")
    if json:
        console.emit(result)
        return
    cells = [list(one.as_row().values()) for one in found]
    shown = [["-" if cell is None else cell for cell in row] for row in cells]
    console.table("", [name.replace("_", " ") for name in found[0].as_row()], shown)
    console.say(f"kept in {path}")


def _by_memory(
    subject: Subject, run: Path, file: list[str] | None, memories: list[int], rows: int
) -> list[ByMemory]:
    """The loss for each length of memory, on the run's held-out text or another."""
    from foreword.evaluate import context, heldout

    if file:
        with heldout.shards_of_texts(subject, file) as (shards, per_token):
            return context.by_memory(subject, shards, memories, per_token, rows)
    prepared = heldout.shards_of(subject, run)
    per_token = prepared.heldout_bytes_per_token
    return context.by_memory(subject, prepared.heldout, memories, per_token, rows)


def _numbers(text: str) -> list[int]:
    """`0,64,128` as numbers."""
    from foreword.errors import UserError

    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise UserError(f"--memory {text}: expected numbers of tokens, as in 0,64,128") from None
