"""Causal prediction of every second token, as an example of an objective in a plug-in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Interval

from foreword.data.rng import RowRng
from foreword.objectives.causal import Causal
from foreword.types import Example, Rows, Vocab


@dataclass(frozen=True)
class SkipCausal(Causal):
    """Predict each `every`-th token of a document from all tokens before it.

        ids      [ 7  8  9  4  2]
        inputs   [ 7  8  9  4  2]
        targets  [ .  9  .  2  .]          . is not scored

    With layout `decoder`.

    Attributes:
        every: 1 scores all tokens, 2 each second one (positions 0, 2, 4, ...).
    """

    every: Annotated[int, Interval(ge=1, le=1_000)] = 2

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the rows as they are, with weight 0 where a token is skipped."""
        example = super().corrupt(rows, rng, vocab)
        is_scored = rows.positions % self.every == 0
        return replace(example, weights=example.weights * is_scored)
