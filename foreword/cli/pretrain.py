"""`foreword pretrain`: train a model from a recipe and text, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foreword.cli._budget_options import BudgetOptions
from foreword.cli._model_options import Json, Quiet, Track
from foreword.cli._reading import Reading
from foreword.cli._run_options import RunOptions


def pretrain(
    out: Annotated[Path, typer.Option("--out", help="Run folder to create.")],
    options: RunOptions,
    budget: BudgetOptions,
    reading: Reading,
    track: Track = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Pretrain a model on your own text.

    It trains a tokenizer if none is given, and writes token shards if there are none. Kill it at
    any moment; `foreword resume` continues. With --from, weights, architecture and tokenizer come
    from that model, the rest from the recipe. If --heldout names text, all of --data is trained on.
    """
    from foreword.api.pretrain import start
    from foreword.api.progress import progress_of
    from foreword.cli._finished import finish
    from foreword.runs import run as running
    from foreword.runs.tracking import trackers_of

    running.require_free(out)
    trackers = trackers_of(track or ())
    progress = progress_of(not quiet, announces=True)
    request = options.resolve(budget, reading, progress.note)
    return finish(out, lambda: start(request, out, progress, (), trackers), as_json=json)
