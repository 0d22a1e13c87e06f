"""One sequence whose source sees itself both ways and whose target is causal: the prefix LM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from foreword.errors import UserError
from foreword.layouts._contract import Layout, Summary
from foreword.layouts.decoder import join, next_token
from foreword.layouts.encoder import within
from foreword.nn import masks
from foreword.types import Batch, Example, Vocab


@dataclass(frozen=True)
class Prefix(Layout):
    """A decoder that reads its source in both directions, for objectives with a source.

    source [7 50  4 51]  target [50 8 9 1]
    ids     [ 7 50  4 51 50  8  9  1]      the first four see each other
    targets [ .  .  . 50  8  9  1  .]      . is not scored

    Reference: Raffel et al. 2020, section 3.2.1.
    """

    summary: ClassVar[Summary] = "last"

    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        """The batch: ids, and as targets the ids one place further on.

        Raises:
            UserError: the objective has no source.
        """
        joined, weights, is_source = join(example)
        if not is_source.any():
            raise UserError(
                "layout.kind: 'prefix' needs an objective with a source (span_corruption)"
            )
        mask = (masks.CausalMask() | masks.PrefixMask(is_source)) & within(
            joined.documents, joined.documents
        )
        return next_token(joined, weights, mask)
