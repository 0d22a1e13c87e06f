"""What a packing is, and what the rest may ask of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from foreword.data.shards import Shards
from foreword.ranges import Ranged
from foreword.types import Array, Rows, Vocab


class Packed(ABC):
    """A corpus as rows, any of them at once.

    Attributes:
        rows_per_epoch: how many rows show every token once.
        tokens_per_epoch: tokens of the corpus, special ones included.
        notes: lines worth reading on what was done to it.
    """

    rows_per_epoch: int
    tokens_per_epoch: int
    notes: Sequence[str] = ()

    @abstractmethod
    def rows(self, numbers: Array) -> Rows:
        """The rows with these places in the order of training, (batch,) int64."""


class Packing(Ranged, ABC):
    """How documents become rows: a kind in `data/packing/`.

    Attributes:
        is_contiguous: a row goes on where the lane's row before has ended.
        wants_pairs: documents are of two sequences, a text and what it is translated into.
        labels_pairs: rows are of pairs of texts with labels, told by the token before each.
    """

    is_contiguous: ClassVar[bool] = False
    wants_pairs: ClassVar[bool] = False
    labels_pairs: ClassVar[bool] = False

    @property
    @abstractmethod
    def length(self) -> int:
        """Tokens of a row."""

    @property
    def max_text(self) -> int:
        """The most tokens of one text in a row."""
        return self.length

    @property
    def bos(self) -> str:
        """The special token before each text, "" without one."""
        return ""

    @property
    def eos(self) -> str:
        """The special token after each text, "" without one."""
        return ""

    @property
    def document_mask(self) -> bool:
        """Whether documents of one row, which could read as one text, are kept apart."""
        return False

    @abstractmethod
    def open(
        self, shards: Shards, vocab: Vocab, seed: int, batch: int, *, once: bool = False
    ) -> Packed:
        """The corpus as rows, in an order that depends on the seed alone.

        Args:
            shards: the documents.
            vocab: to look up special tokens.
            seed: of the order.
            batch: rows per step.
            once: the text is read a single time and to its end, as held-out text is: an epoch's
                rows show all of it, with padding where they have room left.

        Raises:
            UserError: the text is too short or not of this form, or the tokenizer lacks a special
                token.
        """
