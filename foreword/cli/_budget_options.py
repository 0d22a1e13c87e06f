"""The options `--hours`, `--tokens`, `--epochs`, `--steps` and `--flops`: one budget."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from foreword.cli._options import Options
from foreword.settings.ranges import Count, EpochsOfText, Flops, Hours, TokensOfText

if TYPE_CHECKING:
    from foreword.train.budget import Budget


@dataclass(frozen=True)
class BudgetOptions(Options):
    """The budget of a run, or of each cell of a grid."""

    hours: Annotated[
        Hours | None,
        typer.Option(
            help="Budget in hours of training; tokenizer and token shards are made before."
        ),
    ] = None
    tokens: Annotated[TokensOfText | None, typer.Option(help="Budget in tokens.")] = None
    epochs: Annotated[EpochsOfText | None, typer.Option(help="Budget in epochs.")] = None
    steps: Annotated[Count | None, typer.Option(help="Budget in steps.")] = None
    flops: Annotated[Flops | None, typer.Option(help="Budget in FLOPs.")] = None

    def resolve(self) -> Budget | None:
        """Return the budget of the options; None if none is given.

        Raises:
            UserError: more than one is given, or its amount is impossible.
        """
        from foreword.api._arguments import budget_of

        return budget_of(**asdict(self))
