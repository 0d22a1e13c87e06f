"""Translation: read one side of a pair and predict the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.objectives._source_target import SourceTarget, compact, example_of
from foreword.types import Example, MaxLengths, Rows, Vocab


@dataclass(frozen=True)
class Translate(SourceTarget):
    """The source is the first text of each pair, the target the second.

        ids       [ 7  8  9  4  5]         </s> is 1
        segments  [ 0  0  0  1  1]
        inputs    [ 7  8  9  1]
        targets   [ 4  5  1]

    With layouts `encoder_decoder`, `prefix` and `decoder`; with packing `parallel`. In an
    `encoder_decoder` sources and targets are each padded to the widest row of the group.

    Attributes:
        end: the token after each source and target; "" for none.

    Also called: translation.
    Reference: Sutskever et al. 2014, section 2.
    """

    end: str = "</s>"

    def max_lengths(self, length: int, text: int) -> MaxLengths:
        """Return the lengths for a pair with a single token on one side."""
        del length
        end = 1 if self.end else 0
        return MaxLengths(text - 1 + end, text - 1 + end, text + 2 * end)

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the first texts as sources and the second ones as targets.

        Raises:
            UserError: the rows hold no pairs.
        """
        if rows.segments is None:
            raise UserError(
                "objective.kind: 'translate' requires pairs of texts; use packing.kind = 'parallel'"
            )
        is_target = np.asarray(rows.segments) == 1
        end = vocab.id(self.end) if self.end else None
        source = compact(rows.documents, (rows.ids, ~is_target), end=end)
        return example_of(source, compact(rows.documents, (rows.ids, is_target), end=end))
