"""The options `--hours`, `--tokens`, `--epochs`, `--steps` and `--flops`: one budget."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from foreword import config
from foreword.cli._options import Options
from foreword.errors import UserError
from foreword.ranges import Count, EpochsOfText, Flops, Hours, TokensOfText

if TYPE_CHECKING:
    from foreword.runs.recipe import Recipe
    from foreword.train.budget import Budget


@dataclass(frozen=True)
class BudgetOptions(Options):
    """The budget of a run, or of each cell of a grid."""

    hours: Annotated[Hours | None, typer.Option(help="Budget in hours.")] = None
    tokens: Annotated[TokensOfText | None, typer.Option(help="Budget in tokens.")] = None
    epochs: Annotated[EpochsOfText | None, typer.Option(help="Budget in epochs.")] = None
    steps: Annotated[Count | None, typer.Option(help="Budget in steps.")] = None
    flops: Annotated[Flops | None, typer.Option(help="Budget in FLOPs.")] = None

    def on(self, recipe: Recipe) -> Recipe:
        """Return the recipe, with the budget of the options if one is given.

        Raises:
            UserError: more than one is given, or its amount is impossible.
        """
        budget = self.resolve()
        return recipe if budget is None else replace(recipe, train=budget.put_on(recipe.train))

    def resolve(self) -> Budget | None:
        """Return the budget of the options; None if none is given.

        Raises:
            UserError: more than one is given, or its amount is impossible.
        """
        from foreword.train.budget import Budget

        amounts = {name: value for name, value in asdict(self).items() if value is not None}
        if len(amounts) > 1:
            flags = ", ".join(f"--{name}" for name in amounts)
            raise UserError(f"give one budget, not {len(amounts)}: {flags}")
        if not amounts:
            return None
        ((name, amount),) = amounts.items()
        return config.build(Budget, {"unit": name, "amount": amount})
