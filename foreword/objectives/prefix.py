"""Prefix language modelling: read the beginning of a text and predict the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foreword.data.rng import RowRng
from foreword.objectives._source_target import (
    SourceTarget,
    compact,
    example_of,
    first_and_last,
    piece_starts,
)
from foreword.settings.ranges import ShareBelowOne
from foreword.types import Array, Example, MaxLengths, Rows, Vocab


@dataclass(frozen=True)
class Prefix(SourceTarget):
    """Each document's piece is split in two: the source is the beginning, the target the rest.

        ids      [ 7  8  9  4  2]          </s> is 1
        inputs   [ 7  8  9  1]
        targets  [ 4  2  1]

    With layouts `encoder_decoder`, `prefix` and `decoder`. Every split is equally likely and
    leaves at least one token on either side; a piece of one token is all target. Joined in one row
    (`prefix`, `decoder`) nothing is padded; in an `encoder_decoder` sources and targets are each
    padded to the longest of the group, so with many rows about half of the positions are padding.

    Attributes:
        rate: share of each piece that is target, fixed for all; 0 for a random split.
        end: the token after each document's source and target; "" for none.

    Also called: prefix LM, PrefixLM.
    Reference: Raffel et al. 2020, section 3.3.1, after Liu et al. 2018; Tay et al. 2022, section
    3.1.2 (S-denoising, of `rate` 0.25).
    """

    rate: ShareBelowOne = 0.0
    end: str = "</s>"

    def max_lengths(self, length: int, text: int) -> MaxLengths:
        """Return the lengths for a document split before its last token and after its first."""
        del length
        end = 1 if self.end else 0
        target = round(self.rate * text) if self.rate else text - 1
        source = text - target if self.rate else text - 1
        return MaxLengths(max(source, 1) + end, max(target, 1) + end, text + 2 * end)

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the text in two parts; nothing is masked and only the ends are added."""
        documents = np.asarray(rows.documents)
        position, length, draw = _in_pieces(documents, rng.uniform(documents.shape[1]))
        if self.rate:
            cut = length - np.rint(self.rate * length).astype(np.int64)
        else:
            cut = 1 + (draw * (length - 1)).astype(np.int64)
        # At least one token on either side; a single token is target.
        is_target = position >= np.minimum(np.maximum(cut, 1), length - 1)
        end = vocab.id(self.end) if self.end else None
        source = compact(documents, (rows.ids, ~is_target), end=end)
        return example_of(source, compact(documents, (rows.ids, is_target), end=end))


def _in_pieces(documents: Array, draws: Array) -> tuple[Array, Array, Array]:
    """Return each token's position in its piece, the piece's length and its first token's draw."""
    is_first, is_last = first_and_last(documents)
    column = np.arange(documents.shape[1])
    start = piece_starts(is_first)
    last = np.where(is_last, column, len(column) - 1)[:, ::-1]
    stop = np.minimum.accumulate(last, axis=1)[:, ::-1] + 1
    return column - start, stop - start, np.take_along_axis(draws, start, axis=1)
