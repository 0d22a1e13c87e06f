"""`foreword evaluate`: a run's loss on text it has not seen."""

from __future__ import annotations

import json as jsons
import sys
from pathlib import Path
from typing import Annotated

import typer

from foreword.cli import console
from foreword.cli._looking import Device, Json, Run, open_model


def evaluate(
    run: Run,
    file: Annotated[
        list[str] | None, typer.Option(help="Other text than the run's held-out one.")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="At most so many rows; all if unsaid.")] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure the held-out loss of a run, beside what counting words reaches.

    The result is kept in RUN/evaluations, and `foreword report` shows it.
    """
    from foreword import atomic
    from foreword.errors import UserError
    from foreword.evaluate import heldout

    if rows is not None and rows < 1:
        raise UserError(f"--rows: must be at least 1, got {rows}")
    loaded = open_model(run, device)
    folder, most = loaded.opened.run, rows or heldout.ALL
    with console.progress("measuring") as bar:
        bar.add_task("measuring", total=None, note="")
        if file:
            found = heldout.on_texts(loaded.subject, file, most)
        else:
            found = heldout.on_run(loaded.subject, folder, most)
    name = f"evaluate-{Path(file[0]).name}" if file else "evaluate-heldout"
    result = {
        "name": name,
        "task": "held-out loss",
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
