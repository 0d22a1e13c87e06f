"""The contract of packings, the kinds in `data/packing/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from foreword.data.shards import Shards
from foreword.settings.ranges import Ranged
from foreword.types import Array, Rows, Vocab


class Packed(ABC):
    """A corpus as rows, with random access.

    Attributes:
        rows_per_epoch: number of rows that show every token once.
        tokens_per_epoch: tokens of the corpus, special ones included.
        notes: remarks for the user on changes to the text.
    """

    rows_per_epoch: int
    tokens_per_epoch: int
    notes: Sequence[str] = ()

    @abstractmethod
    def rows(self, numbers: Array) -> Rows:
        """Return the rows with these numbers in the order of training, (batch,) int64."""


class Packing(Ranged, ABC):
    """The packing of documents into rows: a kind in `data/packing/`.

    Attributes:
        is_contiguous: a row continues the stream's previous row.
        needs_pairs: documents have two sequences, a text and its translation.
        labels_pairs: rows hold labelled pairs of texts, classified at the token before each.
    """

    is_contiguous: ClassVar[bool] = False
    needs_pairs: ClassVar[bool] = False
    labels_pairs: ClassVar[bool] = False

    @property
    @abstractmethod
    def length(self) -> int:
        """The tokens of a row."""

    @property
    def max_text(self) -> int:
        """The most tokens of one text in a row."""
        return self.length

    @property
    def bos(self) -> str:
        """The special token before each text, "" for none."""
        return ""

    @property
    def eos(self) -> str:
        """The special token after each text, "" for none."""
        return ""

    @property
    def document_mask(self) -> bool:
        """Whether documents of one row do not attend to each other."""
        return False

    @abstractmethod
    def open(
        self, shards: Shards, vocab: Vocab, seed: int, batch: int, *, once: bool = False
    ) -> Packed:
        """Return the corpus as rows, in an order that depends on the seed alone.

        Args:
            shards: the documents.
            vocab: to look up special tokens.
            seed: seed of the order.
            batch: rows per step.
            once: whether the text is read once, to its end, as held-out text is: an epoch's rows
                show all of it, padded where they have room left.

        Raises:
            UserError: the text is too short or not of this form, or the tokenizer lacks a special
                token.
        """
