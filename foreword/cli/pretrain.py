"""`foreword pretrain`: from a recipe and text to a trained model, in one command."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer


def pretrain(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (bert_mini) or a .toml file.")],
    data: Annotated[
        list[str],
        typer.Option("--data", help="Files, folders or globs; or a folder that prepare wrote."),
    ],
    out: Annotated[Path, typer.Option("--out", help="The run folder to make.")],
    more: Annotated[
        list[str] | None, typer.Argument(help="More text, as a shell's glob gives it.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="A tokenizer folder; without it one is trained.")
    ] = None,
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="A setting: model.layers=6.")
    ] = None,
    hours: Annotated[float | None, typer.Option(help="Budget in hours.")] = None,
    tokens: Annotated[float | None, typer.Option(help="Budget in tokens.")] = None,
    steps: Annotated[int | None, typer.Option(help="Budget in steps.")] = None,
    flops: Annotated[float | None, typer.Option(help="Budget in FLOPs.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Pretrain a model on your own text.

    Without a tokenizer it trains one, without shards it makes them. Kill it at any moment;
    `foreword resume` carries on.
    """
    from foreword.cli._watching import carry_on, with_budget
    from foreword.errors import UserError
    from foreword.train import run as running
    from foreword.train.recipe import load_recipe

    resolved = with_budget(load_recipe(recipe, assign or []), hours, tokens, steps, flops)
    was_there = out.exists()
    running.require_free(out)
    try:
        running.start(resolved, running.Inputs((*data, *(more or [])), tokenizer), out)
        return carry_on(out, as_json=json)
    except UserError:
        if out.exists() and not (out / "metrics.jsonl").exists():  # nothing was trained
            _clear(out, keep=was_there)
        raise


def _clear(run: Path, *, keep: bool) -> None:
    """Leaves nothing half-made."""
    for path in run.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not keep:
        run.rmdir()
