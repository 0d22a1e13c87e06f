"""Read how a text begins and write how it goes on: prefix language modelling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foreword.data.rng import RowRng
from foreword.objectives._contract import SourceForm
from foreword.objectives._source_target import (
    SourceTarget,
    begins,
    compact,
    example_of,
    first_and_last,
)
from foreword.ranges import ShareBelowOne
from foreword.types import Array, Example, MaxLengths, Rows, Vocab


@dataclass(frozen=True)
class Prefix(SourceTarget):
    """Each document's piece is cut in two: the source is what stands before, the target the rest.

        ids      [ 7  8  9  4  2]          </s> is 1
        inputs   [ 7  8  9  1]
        targets  [ 4  2  1]

    With layouts `encoder_decoder`, `prefix` and `decoder`. Every place to cut is as likely, and
    leaves at least one token on either side; a piece of one token is all target. Joined in one row
    (`prefix`, `decoder`) nothing is padded; in an `encoder_decoder` sources and targets are each as
    wide as the longest of the group, so that with many rows about half of the places are padding.

    Attributes:
        rate: share of each piece that is target, the same in all; 0 for a place drawn anew.
        end: put after each document's input and target; "" for none.

    Reference: Raffel et al. 2020, section 3.3.1, after Liu et al. 2018; Tay et al. 2022, section
    3.1.2 (S-denoising, of `rate` 0.25).
    """

    rate: ShareBelowOne = 0.0
    end: str = "</s>"

    @property
    def source_forms(self) -> tuple[SourceForm, ...]:
        """What its sources look like."""
        return (SourceForm(),)

    def max_lengths(self, length: int, text: int) -> MaxLengths:
        """Return the lengths of a document that is cut at its last place, and at its first."""
        del length
        end = 1 if self.end else 0
        target = round(self.rate * text) if self.rate else text - 1
        source = text - target if self.rate else text - 1
        return MaxLengths(max(source, 1) + end, max(target, 1) + end, text + 2 * end)

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """The text in two parts; nothing is hidden and nothing added but the ends."""
        documents = np.asarray(rows.documents)
        place, length, draw = _in_pieces(documents, rng.uniform(documents.shape[1]))
        if self.rate:
            cut = length - np.rint(self.rate * length).astype(np.int64)
        else:
            cut = 1 + (draw * (length - 1)).astype(np.int64)
        # At least one token on either side, but of a single one it is the target that has it.
        is_target = place >= np.minimum(np.maximum(cut, 1), length - 1)
        end = vocab.id(self.end) if self.end else None
        source = compact(documents, (rows.ids, ~is_target), end=end)
        return example_of(source, compact(documents, (rows.ids, is_target), end=end))


def _in_pieces(documents: Array, draws: Array) -> tuple[Array, Array, Array]:
    """Place in its document's piece, tokens of the piece, draw of the piece's first token."""
    is_first, is_last = first_and_last(documents)
    column = np.arange(documents.shape[1])
    begin = begins(is_first)
    last = np.where(is_last, column, len(column) - 1)[:, ::-1]
    stop = np.minimum.accumulate(last, axis=1)[:, ::-1] + 1
    return column - begin, stop - begin, np.take_along_axis(draws, begin, axis=1)
