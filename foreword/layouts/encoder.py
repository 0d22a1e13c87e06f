"""Everything sees everything of its document; targets stand at the positions of the source."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.errors import UserError
from foreword.layouts._contract import Layout
from foreword.nn.masks import DocumentMask, FullMask, Mask
from foreword.types import Array, Batch, Example, Vocab


@dataclass(frozen=True)
class Encoder(Layout):
    """For objectives that predict in place (masked language models).

    source [ 7  3  9 | 4  3]  targets [ .  8  . | .  5]: `|` parts documents, which the mask
    keeps apart.
    """

    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        """The batch, with the document mask where a row has several.

        Raises:
            UserError: the objective's target does not stand at the source's positions.
        """
        source = example.source
        if source is None or not example.is_aligned or example.order is not None:
            raise UserError(
                "layout.kind: 'encoder' predicts in place and all at once, and this objective does "
                "not; use another layout"
            )
        return Batch(
            ids=source.ids,
            positions=source.positions,
            mask=within(source.documents, source.documents),
            targets=example.target.ids,
            weights=example.weights,
            segments=source.segments,
            labels=example.labels,
            uniform_draws=example.uniform_draws,
        )


def within(queries: Array, keys: Array) -> Mask:
    """The document mask, or none where all rows hold one document and no padding."""
    return DocumentMask(queries, keys) if queries.any() or keys.any() else FullMask()
