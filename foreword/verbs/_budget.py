"""The arguments of verbs that have a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from foreword.settings.ranges import Count, EpochsOfText, Flops, Hours, TokensOfText

if TYPE_CHECKING:
    from foreword.train.budget import Budget


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """A budget, in one of its units; default: that of the recipe.

    Attributes:
        hours: budget in hours of training; tokenizer and token shards are made before.
        tokens: budget in tokens.
        epochs: budget in epochs.
        steps: budget in steps.
        flops: budget in FLOPs.
    """

    hours: Hours | None = None
    tokens: TokensOfText | None = None
    epochs: EpochsOfText | None = None
    steps: Count | None = None
    flops: Flops | None = None

    def budget(self) -> Budget | None:
        """Return the budget; None if none is given.

        Raises:
            UserError: more than one is given, or its amount is impossible.
        """
        from foreword.verbs._arguments import budget_of

        return budget_of(
            hours=self.hours,
            tokens=self.tokens,
            epochs=self.epochs,
            steps=self.steps,
            flops=self.flops,
        )
