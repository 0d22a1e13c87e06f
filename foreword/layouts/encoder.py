"""One bidirectional sequence with targets at the positions of the source."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.errors import UserError
from foreword.layouts._contract import Layout
from foreword.nn.masks import DocumentMask, FullMask, Mask
from foreword.types import Array, Batch, CausalRows, Example, PredictionOrder, Vocab


@dataclass(frozen=True)
class Encoder(Layout):
    """The layout of objectives that predict in place (masked language models).

    source [ 7  3  9 | 4  3]  targets [ .  8  . | .  5]: `|` separates documents, which do not
    attend to each other.
    """

    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        """Return the batch, with a document mask where a row has several documents.

        Raises:
            UserError: the objective's targets are not at the source's positions.
        """
        source = example.source
        at_once = example.part(PredictionOrder) is None and example.part(CausalRows) is None
        if source is None or not example.is_aligned or not at_once:
            raise UserError(
                "layout.kind: 'encoder' requires an objective that predicts in place, all tokens "
                "at once; use another layout"
            )
        return Batch(
            ids=source.ids,
            positions=source.positions,
            mask=document_mask(source.documents, source.documents),
            targets=example.target.ids,
            weights=example.weights,
            segments=source.segments,
            documents=row_documents(source.documents),
            parts=example.parts,
        )


def document_mask(queries: Array, keys: Array) -> Mask:
    """Return the document mask, or the full one where all rows are one document, unpadded."""
    return DocumentMask(queries, keys) if queries.any() or keys.any() else FullMask()


def row_documents(documents: Array) -> Array | None:
    """Return `Batch.documents`: None where all rows are one document, unpadded."""
    return documents if documents.any() else None
