"""Sentence-order prediction: which of two texts comes first (ALBERT's second objective)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foreword.data.rng import RowRng
from foreword.objectives._pair import PairObjective
from foreword.settings.ranges import OpenShare
from foreword.types import PairLabels, Rows


@dataclass(frozen=True)
class SentenceOrder(PairObjective):
    """Half of the pairs are swapped: 0 where A stands before B, 1 where B stands before A.

        ids       [ 1  7  8  2  9  2]       [CLS] is 1, [SEP] is 2
        segments  [ 0  0  0  0  1  1]
        inputs    [ 1  9  2  7  8  2]
        targets   [ .  .  .  .  .  .]       . is not scored
        labels    [ 1  .  .  .  .  .]       0 is in order, 1 is swapped

    With layout `encoder` and packing `pairs` with `random` 0; a pair that the packing labels 1,
    since its texts are of two documents, has no order and gets no label. After a swap the first
    text is segment 0 again. It predicts no tokens, so it is usually a term of a `sum` with
    `masked`.

    Attributes:
        swapped: share of the pairs that is swapped.

    Also called: SOP.
    Reference: Lan et al. 2020, section 3.1, "Inter-sentence coherence loss".
    Differs from the paper: the draw is fresh in each epoch.
    """

    swapped: OpenShare = 0.5

    def relabel(self, rows: Rows, rng: RowRng) -> Rows:
        """Return the rows with some pairs swapped; lengths do not change.

        Raises:
            UserError: the packing makes no pairs.
        """
        segments, labels = self.pairs(rows)
        is_swapped = rng.uniform(rows.ids.shape[1]) < self.swapped
        labels = np.where(labels == 0, is_swapped.astype(np.int64), -1)
        # A pair's label stands at its first token and applies to all of it.
        first = np.arange(rows.ids.shape[1]) - rows.positions
        moves = (np.take_along_axis(labels, first, axis=1) == 1) & (rows.positions > 0)
        # The first token stays, the second text comes before the first: 0, 1, 2 within a pair.
        rank = np.where(moves, 2 - segments, 0)
        order = np.argsort(first * 3 + rank, axis=1, kind="stable")
        segments = np.where(moves, 1 - segments, segments)
        return replace(
            rows,
            ids=np.take_along_axis(rows.ids, order, axis=1),
            segments=np.take_along_axis(segments, order, axis=1),
            parts=(PairLabels(labels),),
        )
