"""`foreword pretrain`: from a recipe and text to a trained model, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foreword.cli._model_options import Json
from foreword.cli._reading import Reading
from foreword.cli._run_options import RunOptions


def pretrain(
    out: Annotated[Path, typer.Option("--out", help="The run folder to make.")],
    asked: RunOptions,
    reading: Reading,
    json: Json = False,
) -> int:
    """Pretrain a model on your own text.

    Without a tokenizer it trains one, without shards it makes them. Kill it at any moment;
    `foreword resume` carries on. With --from, weights, architecture and tokenizer come from there,
    the rest from the recipe. With text given as --heldout, all of --data is trained on.
    """
    from foreword.cli._progress import carry_on
    from foreword.errors import UserError
    from foreword.runs import run as running

    before = running.names_in(out)
    running.require_free(out)
    wanted = asked.resolve(reading).extended()
    try:
        running.start(wanted.recipe, wanted.inputs, out, wanted.starting_model)
        return carry_on(out, as_json=json)
    except UserError:
        running.take_back(out, before)
        raise
