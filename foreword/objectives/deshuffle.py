"""Put the words of a text back in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foreword.data.rng import RowRng
from foreword.objectives._contract import SourceForm
from foreword.objectives._source_target import SourceTarget, compact, example_of
from foreword.types import Example, MaxLengths, Rows, Vocab


@dataclass(frozen=True)
class Deshuffle(SourceTarget):
    """The source is each document's tokens in random order, the target the text as it was.

        ids      [ 7  8  9  4]             </s> is 1
        inputs   [ 9  7  4  8  1]
        targets  [ 7  8  9  4  1]

    With layouts `encoder_decoder`, `prefix` and `decoder`. All of a piece is shuffled, special
    tokens too, every order as likely; rows of as many documents are as wide, so that nothing is
    padded.

    Attributes:
        end: put after each document's input and target; "" for none.

    Reference: Raffel et al. 2020, section 3.3.1, after Liu et al. 2019 ("Summae").
    """

    end: str = "</s>"

    @property
    def source_forms(self) -> tuple[SourceForm, ...]:
        """What its sources look like."""
        return (SourceForm(),)

    def max_lengths(self, length: int, text: int) -> MaxLengths:
        """Return the lengths of a document whose source and target are the whole text each."""
        del length
        side = text + (1 if self.end else 0)
        return MaxLengths(side, side, 2 * side)

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """The text, and its tokens in another order within each document."""
        documents = np.asarray(rows.documents)
        # Documents keep their places, so sorting by them and then by a draw shuffles within them.
        outer = np.where(documents < 0, documents.shape[1], documents)
        order = np.argsort(outer + rng.uniform(documents.shape[1]), axis=1)
        shuffled = np.take_along_axis(rows.ids, order, axis=1)
        end = vocab.id(self.end) if self.end else None
        is_there = documents >= 0
        source = compact(documents, (shuffled, is_there), end=end)
        return example_of(source, compact(documents, (rows.ids, is_there), end=end))
