"""The source for the encoder, and the target for the decoder, shifted right by a start token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foreword.errors import UserError
from foreword.layouts._contract import Layout, Summary
from foreword.layouts.encoder import document_mask
from foreword.nn.masks import CausalMask
from foreword.types import Batch, Example, MaxLengths, Vocab


@dataclass(frozen=True)
class EncoderDecoder(Layout):
    """The layout of objectives with a source and a separate target.

    source [7 50  4 51]  target [50 8 9 1]   start is 0
    source  [ 7 50  4 51]
    ids     [ 0 50  8  9]
    targets [50  8  9  1]

    Attributes:
        start: the token that the decoder starts from, in T5 the padding token.

    Reference: Raffel et al. 2020, section 2.1.
    """

    has_source: ClassVar[bool] = True
    summary: ClassVar[Summary] = "start"

    start: str = "[PAD]"

    def max_length(self, lengths: MaxLengths) -> int:
        """Return the greatest length of a sequence: encoder and decoder have one each."""
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
        # The decoder's side, with the encoder's as its source.
        return Batch(
            ids=ids,
            positions=target.positions,
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
