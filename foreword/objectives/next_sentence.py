"""Next-sentence prediction: does text B follow text A (BERT's second objective)."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.data.rng import RowRng
from foreword.objectives._pair import PairObjective
from foreword.types import Rows


@dataclass(frozen=True)
class NextSentence(PairObjective):
    """The packing's label of each pair: 0 where B follows A, 1 where B is a random text.

        ids       [ 1  7  8  2  9  2]       [CLS] is 1, [SEP] is 2
        segments  [ 0  0  0  0  1  1]
        inputs    [ 1  7  8  2  9  2]
        targets   [ .  .  .  .  .  .]       . is not scored
        labels    [ 0  .  .  .  .  .]       0 is next, 1 is random

    With layout `encoder` and packing `pairs`, whose `random` is the share of label 1. It predicts
    no tokens, so it is usually a term of a `sum` with `masked`.

    Also called: NSP.
    Reference: Devlin et al. 2019, section 3.1, task 2.
    Differs from the paper: nothing; labels are those of the released code and of `transformers`.
    """

    def relabel(self, rows: Rows, rng: RowRng) -> Rows:
        """Return the rows unchanged.

        Raises:
            UserError: the packing makes no pairs.
        """
        self.pairs(rows)
        return rows
