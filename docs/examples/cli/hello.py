"""`foreword hello`, as an example of a verb in a plug-in."""

from __future__ import annotations

from typing import Annotated

import typer

from foreword.cli import console
from foreword.cli._model_options import Json


def hello(name: Annotated[str, typer.Argument(help="Whom to greet.")], json: Json = False) -> None:
    """Greet somebody."""
    if json:
        console.emit({"greeted": name})
    else:
        console.say(f"Hello, {name}.")
