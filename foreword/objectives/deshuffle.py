"""Deshuffling: restore the order of a text's tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foreword.data.rng import RowRng
from foreword.objectives._source_target import SourceTarget, compact, example_of
from foreword.types import Example, MaxLengths, Rows, Vocab


@dataclass(frozen=True)
class Deshuffle(SourceTarget):
    """The source is each document's tokens in random order, the target the original text.

        ids      [ 7  8  9  4]             </s> is 1
        inputs   [ 9  7  4  8  1]
        targets  [ 7  8  9  4  1]

    With layouts `encoder_decoder`, `prefix` and `decoder`. A whole piece is shuffled, special
    tokens included, and every order is equally likely. Rows with equal numbers of documents are
    equally wide and need no padding.

    Attributes:
        end: the token after each document's source and target; "" for none.

    Also called: deshuffling.
    Reference: Raffel et al. 2020, section 3.3.1, after Liu et al. 2019 ("Summae").
    """

    end: str = "</s>"

    def max_lengths(self, length: int, text: int) -> MaxLengths:
        """Return the lengths for a document whose source and target are each the whole text."""
        del length
        side = text + (1 if self.end else 0)
        return MaxLengths(side, side, 2 * side)

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return each document's shuffled tokens as source and the text as target."""
        documents = np.asarray(rows.documents)
        # Sorting by document and then by a uniform draw shuffles within each document.
        document = np.where(documents < 0, documents.shape[1], documents)
        order = np.argsort(document + rng.uniform(documents.shape[1]), axis=1)
        shuffled = np.take_along_axis(rows.ids, order, axis=1)
        end = vocab.id(self.end) if self.end else None
        is_token = documents >= 0
        source = compact(documents, (shuffled, is_token), end=end)
        return example_of(source, compact(documents, (rows.ids, is_token), end=end))
