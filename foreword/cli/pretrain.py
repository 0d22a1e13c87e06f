"""`foreword pretrain`: from a recipe and text to a trained model, in one command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foreword.cli import console
from foreword.cli._heldout import HeldOut, hold_out

if TYPE_CHECKING:
    from foreword.train.continued import Foundation
    from foreword.train.recipe import Recipe


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
    heldout: HeldOut = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="A run or a Hugging Face folder whose weights to start from."),
    ] = None,
    extend_vocabulary: Annotated[
        int, typer.Option(help="With --from: new tokens to learn from the text.")
    ] = 0,
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="A setting: model.layers=6.")
    ] = None,
    hours: Annotated[float | None, typer.Option(help="Budget in hours.")] = None,
    tokens: Annotated[float | None, typer.Option(help="Budget in tokens.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Budget in epochs.")] = None,
    steps: Annotated[int | None, typer.Option(help="Budget in steps.")] = None,
    flops: Annotated[float | None, typer.Option(help="Budget in FLOPs.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Pretrain a model on your own text.

    Without a tokenizer it trains one, without shards it makes them. Kill it at any moment;
    `foreword resume` carries on. With --from, weights, architecture and tokenizer come from there,
    the rest from the recipe. With text given as --heldout, all of --data is trained on.
    """
    from foreword.cli._watching import carry_on, with_budget
    from foreword.errors import UserError
    from foreword.train import run as running
    from foreword.train.recipe import load_recipe

    resolved = with_budget(load_recipe(recipe, assign or []), hours, tokens, steps, flops, epochs)
    before = running.names_in(out)
    running.require_free(out)
    texts = (*data, *(more or []))
    settings, apart = hold_out(resolved.prepare, heldout)
    resolved = replace(resolved, prepare=settings)
    if apart and more:
        raise UserError(
            f"{more[0]}: to train on or to hold out? With --heldout give each its own --data or "
            "--heldout, or a pattern in quotes"
        )
    foundation = None
    if from_ is not None:
        if tokenizer is not None:
            raise UserError("--tokenizer goes without --from: the tokenizer comes with the weights")
        foundation = _foundation(from_, resolved, assign or [], texts, extend_vocabulary)
        resolved = foundation.recipe
    elif extend_vocabulary:
        raise UserError("--extend-vocabulary: needs --from, a model whose vocabulary to extend")
    try:
        running.start(resolved, running.Inputs(texts, tokenizer, apart), out, foundation)
        return carry_on(out, as_json=json)
    except UserError:
        running.take_back(out, before)
        raise


def _foundation(
    path: str, recipe: Recipe, assign: list[str], texts: tuple[str, ...], new_tokens: int
) -> Foundation:
    """What --from names, laid under the recipe, its vocabulary extended."""
    from foreword.train import continued

    foundation = continued.open_foundation(path).lay_under(recipe, assign)
    for note in foundation.notes:
        console.say(note)
    if new_tokens:
        console.say(f"learning {new_tokens:,} new tokens")
        foundation = continued.extend(foundation, texts, recipe.read, new_tokens)
    return foundation
