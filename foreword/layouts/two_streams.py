"""One sequence read in a random order of prediction, and a second stream that predicts: XLNet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foreword.errors import UserError
from foreword.layouts._contract import Layout
from foreword.layouts.encoder import within
from foreword.nn.masks import PermutationMask
from foreword.types import Batch, Example, Queries, Vocab


@dataclass(frozen=True)
class TwoStreams(Layout):
    """For objectives with an order of prediction; the model needs `two_streams`.

    source [ 7  3  9 | 4  6]  order [ .  1  0 | .  0]
    ids     [ 7  3  9 | 4  6]      read where they stand, 3 sees 9 and not the other way round
    targets [ 3  9 | 6]            predicted by the second stream, each without seeing itself

    The content stream lets a place see the context, itself and the targets before it in the order;
    the second stream does not let it see itself. A document sees itself alone.

    Reference: Yang et al. 2019, section 2.3.
    """

    is_two_streams: ClassVar[bool] = True

    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        """The batch, its targets (batch, predictions) by their places in the row.

        Rows with fewer targets than others are filled up with places of weight 0.

        Raises:
            UserError: the objective has no order of prediction.
        """
        source, order = example.source, example.order
        if source is None or order is None or not example.is_aligned:
            raise UserError(
                "layout.kind: 'two_streams' needs an objective with an order of prediction "
                "(permutation)"
            )
        is_target = example.weights > 0
        most = int(is_target.sum(1).max())
        at = np.argsort(~is_target, axis=1, kind="stable")[:, :most]  # (batch, predictions)
        documents = within(source.documents, source.documents)
        return Batch(
            ids=source.ids,
            positions=source.positions,
            mask=PermutationMask(order) & documents,
            targets=np.take_along_axis(example.target.ids, at, axis=1),
            weights=np.take_along_axis(example.weights, at, axis=1),
            segments=source.segments,
            labels=example.labels,
            queries=Queries(at, PermutationMask(order, includes_self=False) & documents),
        )
