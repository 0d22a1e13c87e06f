"""One sequence, causal or bidirectional, whose positions predict the next token: GPT-BERT."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foreword.errors import UserError
from foreword.layouts._contract import Layout
from foreword.layouts.decoder import next_token
from foreword.layouts.encoder import document_mask
from foreword.nn.masks import CausalMask, Mask, PrefixMask
from foreword.types import Batch, CausalRows, Example, Vocab


@dataclass(frozen=True)
class Hybrid(Layout):
    """The layout of models that are used both ways: causally, and reading in both directions.

    source [ 7  3  9  4 |  4  3]  target [ .  8  .  . |  .  5]
    ids     [ 7  3  9  4 |  4  3]      causal rows see earlier positions, the others all
    targets [ 8  .  .  . |  5  .]      predicted at the position before; . is not scored

    `CausalRows` says which rows are causal; without a source all are. Documents do not attend to
    each other.

    Reference: Charpentier and Samuel 2024, section 3.
    """

    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        """Return the batch: ids, and as targets the next ids.

        Raises:
            UserError: the objective has a source, but no causal or masked rows.
        """
        target, source = example.target, example.source
        rows = example.part(CausalRows)
        if source is not None and rows is None:
            raise UserError(
                "layout.kind: 'hybrid' requires an objective with causal and masked rows, or with "
                "causal ones alone (hybrid, causal)"
            )
        mask: Mask = CausalMask()
        if rows is not None:  # a row that is not causal is a prefix as a whole
            mask |= PrefixMask(np.repeat(~rows.is_causal[:, None], target.ids.shape[1], axis=1))
        mask &= document_mask(target.documents, target.documents)
        batch = next_token(target, example.weights, mask, example)
        if source is None or rows is None:
            return batch
        return replace(batch, ids=source.ids, segments=source.segments).with_part(rows)
