"""One sequence with a bidirectional source and a causal target: the prefix LM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from foreword.errors import UserError
from foreword.layouts._contract import Layout, Summary
from foreword.layouts.decoder import join, next_token
from foreword.layouts.encoder import document_mask
from foreword.nn import masks
from foreword.types import Batch, Example, Vocab


@dataclass(frozen=True)
class Prefix(Layout):
    """The layout of a decoder that attends to its source in both directions (prefix LM).

    source [7 50  4 51]  target [50 8 9 1]
    ids     [ 7 50  4 51 50  8  9  1]      the first four attend to each other
    targets [ .  .  . 50  8  9  1  .]      . is not scored

    Also called: prefix LM.
    Reference: Raffel et al. 2020, section 3.2.1.
    """

    summary: ClassVar[Summary] = "last"

    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        """Return the batch: ids, and as targets the next ids.

        Raises:
            UserError: the objective has no source.
        """
        joined, weights, is_source = join(example)
        if not is_source.any():
            raise UserError(
                "layout.kind: 'prefix' requires an objective with a source (span_corruption)"
            )
        mask = (masks.CausalMask() | masks.PrefixMask(is_source)) & document_mask(
            joined.documents, joined.documents
        )
        return next_token(joined, weights, mask)
