"""The contract of layouts, the kinds in `layouts/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import numpy as np

from foreword.types import Array, Batch, Example, MaxLengths, Vocab

Summary = Literal["text", "extract", "last", "start"]


class Layout(ABC):
    """The arrangement of an example for an architecture: a kind in `layouts/`.

    Attributes:
        is_causal: whether no position attends to later ones.
        predicts_both_directions: whether each position predicts in both directions (ELMo).
        is_two_streams: whether a query stream predicts (XLNet).
        has_source: whether an encoder reads the source.
        summary: where fine-tuning pools a text's states: over the `text`; at an `extract` token
            after it; at its `last` token; at the decoder's `start` token.
    """

    is_causal: ClassVar[bool] = False
    predicts_both_directions: ClassVar[bool] = False
    is_two_streams: ClassVar[bool] = False
    has_source: ClassVar[bool] = False
    summary: ClassVar[Summary] = "text"

    @property
    def start(self) -> str:
        """The special token that the decoder starts from, "" for none."""
        return ""

    def max_length(self, lengths: MaxLengths) -> int:
        """Return the greatest length of a sequence of the model: source and target joined."""
        return lengths.joined

    @abstractmethod
    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        """Return the batch of an example: ids, positions, mask, targets and weights.

        Rows with padding or several documents also have `documents`, by which tokens are counted.

        Raises:
            UserError: the layout does not fit the objective's examples.
        """

    def next_positions(self, ids: Array, last: Array, source: Array | None, vocab: Vocab) -> Array:
        """Return the positions of tokens generated after others, as `arrange` gives them.

        Args:
            ids: the new tokens, (batch, new) int64.
            last: positions of the tokens before them, (batch,) int64.
            source: ids of the encoder's tokens, (batch, source length) int64, -1 for padding; None
                without an encoder.
            vocab: the vocabulary.

        Returns:
            (batch, new) int64.
        """
        return np.asarray(last[:, None] + np.arange(1, ids.shape[1] + 1))
