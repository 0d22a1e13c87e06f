"""`foreword resume`: carries on with a run that was stopped or killed, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def resume(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Carry on with a run from its newest whole checkpoint."""
    from foreword.cli._watching import carry_on

    return carry_on(run, as_json=json)
