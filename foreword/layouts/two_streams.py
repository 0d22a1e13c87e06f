"""One sequence with an order of prediction, and a query stream that predicts: XLNet.

The queries are a list of positions: only predicted ones, a sixth in XLNet, have a query stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foreword.errors import UserError
from foreword.layouts._contract import Layout
from foreword.layouts.encoder import document_mask, row_documents
from foreword.nn.masks import PermutationMask
from foreword.types import Batch, Example, PredictionOrder, Queries, Vocab


@dataclass(frozen=True)
class TwoStreams(Layout):
    """The layout of objectives with an order of prediction; the model needs `two_streams`.

    source [ 7  3  9 | 4  6]  order [ .  1  0 | .  0]
    ids     [ 7  3  9 | 4  6]      in place: 3 attends to 9, but 9 not to 3
    targets [ 3  9 | 6]            predicted by the query stream, each without seeing itself

    In the content stream a position attends to the context, itself and the targets before it in
    the order; in the query stream not to itself. Documents do not attend to each other.

    Also called: two stream.
    Reference: Yang et al. 2019, section 2.3.
    """

    is_two_streams: ClassVar[bool] = True

    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        """Return the batch, with targets (batch, predictions) in the order of their positions.

        Rows with fewer targets than others are padded with positions of weight 0.

        Raises:
            UserError: the objective has no order of prediction.
        """
        source, ranks = example.source, example.part(PredictionOrder)
        if source is None or ranks is None or not example.is_aligned:
            raise UserError(
                "layout.kind: 'two_streams' requires an objective with an order of prediction "
                "(permutation)"
            )
        order, is_target = ranks.order, example.weights > 0
        predictions = int(is_target.sum(1).max())
        at = np.argsort(~is_target, axis=1, kind="stable")[:, :predictions]  # (batch, predictions)
        documents = document_mask(source.documents, source.documents)
        return Batch(
            ids=source.ids,
            positions=source.positions,
            mask=PermutationMask(order) & documents,
            targets=np.take_along_axis(example.target.ids, at, axis=1),
            weights=np.take_along_axis(example.weights, at, axis=1),
            segments=source.segments,
            documents=row_documents(source.documents),
            parts=(
                *example.without(PredictionOrder).parts,
                Queries(at, PermutationMask(order, includes_self=False) & documents),
            ),
        )
