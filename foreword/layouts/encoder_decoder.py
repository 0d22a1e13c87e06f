"""The source for the encoder, and the target for the decoder, shifted right by a start token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from foreword.errors import UserError
from foreword.layouts._contract import Layout, Summary
from foreword.layouts.encoder import document_mask
from foreword.nn.masks import CausalMask
from foreword.types import Array, Batch, Example, MaxLengths, Tokens, Vocab


@dataclass(frozen=True)
class EncoderDecoder(Layout):
    """The layout of objectives with a source and a separate target.

    source [7 50  4 51]  target [50 8 9 1]   start is 0
    source  [ 7 50  4 51]
    ids     [ 0 50  8  9]
    targets [50  8  9  1]

    Attributes:
        start: the token that the decoder starts from, in T5 the padding token.
        positions: positions of the decoder's tokens: `target`, their places in the target; or
            `source`, the places in the source where they are missing: each sentinel is at the place
            of the same sentinel in the source, and the tokens after it follow (GLM).

    Reference: Raffel et al. 2020, section 2.1; Du et al. 2022, section 2.2, for `source`.
    """

    has_source: ClassVar[bool] = True
    summary: ClassVar[Summary] = "start"

    start: str = "[PAD]"
    positions: Literal["target", "source"] = "target"

    def max_length(self, lengths: MaxLengths) -> int:
        """Return the greatest length of a sequence: encoder and decoder have one each.

        Positions in the source may go on past its end, by as much as the target is long.
        """
        if self.positions == "source":
            return lengths.source + lengths.target
        return max(lengths.source, lengths.target)

    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        """Return the batch, with a start token at the beginning of each document's target.

        Raises:
            UserError: the objective has no source, or predicts in place.
        """
        source, target = example.source, example.target
        if source is None or example.is_aligned:
            raise UserError(
                "layout.kind: 'encoder_decoder' requires an objective with a source and a "
                "separate target (span_corruption)"
            )
        # The decoder's input: the target shifted right within each document.
        shifted = np.roll(target.ids, 1, axis=1)
        is_first = np.ones(shifted.shape, dtype=bool)
        is_first[:, 1:] = target.documents[:, 1:] != target.documents[:, :-1]
        ids = np.where(is_first, vocab.id(self.start), shifted)
        positions = target.positions
        if self.positions == "source":
            positions = _positions_in_source(ids, is_first, target.documents, source, vocab)
        # The decoder's side, with the encoder's as its source.
        return Batch(
            ids=ids,
            positions=positions,
            mask=CausalMask() & document_mask(target.documents, target.documents),
            targets=target.ids,
            weights=example.weights,
            source=Batch(
                ids=source.ids,
                positions=source.positions,
                mask=document_mask(source.documents, source.documents),
                documents=source.documents,
            ),
            cross_mask=document_mask(target.documents, source.documents),
            documents=target.documents,
        )

    def next_positions(self, ids: Array, last: Array, source: Array | None, vocab: Vocab) -> Array:
        if self.positions == "target" or source is None:
            return super().next_positions(ids, last, source, vocab)
        positions = np.empty_like(ids)
        for n, new in enumerate(ids.T):
            is_same = source == new[:, None]
            moves = np.isin(new, vocab.sentinels) & is_same.any(axis=1)
            positions[:, n] = last = np.where(moves, is_same.argmax(axis=1), last + 1)
        return positions


def _positions_in_source(
    ids: Array, is_first: Array, documents: Array, source: Tokens, vocab: Vocab
) -> Array:
    """Return where in the row of the source each of the decoder's tokens belongs.

    Args:
        ids: the decoder's tokens, (batch, length) int64.
        is_first: which of them begin a document.
        documents: document of each of them.
        source: the encoder's tokens.
        vocab: the vocabulary, whose sentinels are read.

    Returns:
        (batch, length) int64: at the first token of a document and at sentinels the place of the
        same in the source, and one more at each token after.
    """
    count = ids.shape[1]
    # The place of the same sentinel in the same document, or of the document's first token.
    is_same = (documents[:, :, None] == source.documents[:, None, :]) & (
        is_first[:, :, None] | (ids[:, :, None] == source.ids[:, None, :])
    )
    moves = (is_first | np.isin(ids, vocab.sentinels)) & is_same.any(axis=2)
    place = np.where(moves, is_same.argmax(axis=2), 0)
    # The last token that moved the position, and how many tokens ago that was.
    at = np.broadcast_to(np.arange(count), ids.shape)
    last = np.maximum.accumulate(np.where(moves, at, 0), axis=1)
    return np.asarray(np.take_along_axis(place, last, axis=1) + at - last)
