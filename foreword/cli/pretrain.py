"""`foreword pretrain`: train a model from a recipe and text, in one command."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foreword.cli._budget_options import BudgetOptions
from foreword.cli._launch import Processes, launch, starts_others
from foreword.cli._model_options import Json, Quiet, Track
from foreword.cli._reading import Reading
from foreword.cli._run_options import RunOptions

if TYPE_CHECKING:
    from foreword.api.pretrain import PretrainingResult


def pretrain(
    out: Annotated[Path, typer.Option("--out", help="Run folder to create.")],
    options: RunOptions,
    budget: BudgetOptions,
    reading: Reading,
    probe: Annotated[
        list[str] | None,
        typer.Option(help='Measure while training: "minimal_pairs files=blimp/"; repeatable.'),
    ] = None,
    processes: Processes = 1,
    track: Track = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Pretrain a model on your own text.

    It trains a tokenizer if none is given, and writes token shards if there are none. Kill it at
    any moment; `foreword resume` continues. With --from, weights, architecture and tokenizer come
    from that model, the rest from the recipe. If --heldout names text, all of --data is trained on.
    Without a budget, such as --hours, that of the recipe holds.

    --processes 4 divides each step among four processes, with a GPU each where there are GPUs; so
    does torchrun --nproc-per-node 4 -m foreword pretrain ... The run is the same on any number.
    """
    if starts_others(processes):
        return launch(processes, out)
    from foreword.cli._finished import finish

    def pretrained() -> PretrainingResult:
        from foreword.api.pretrain import pretrain as work

        return work(
            **options.arguments(),
            **asdict(budget),
            **asdict(reading),
            out=out,
            probes=probe or (),
            track=track or (),
            progress=not quiet,
        )

    return finish(out, pretrained, as_json=json)
