"""What a layout is, and what the rest may ask of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from foreword.types import Batch, Example, MaxLengths, Vocab

Summary = Literal["text", "extract", "last", "start"]


class Layout(ABC):
    """How an example meets an architecture: a kind in `layouts/`.

    Attributes:
        is_causal: no place sees later ones.
        predicts_both_directions: each place predicts in both directions.
        is_two_streams: a second stream predicts.
        has_source: an encoder reads the source.
        summary: where a text's states stand for all of it: at the `text` itself; at a token behind
            it that `extract`s; at its `last` token; at the decoder's `start`.
    """

    is_causal: ClassVar[bool] = False
    predicts_both_directions: ClassVar[bool] = False
    is_two_streams: ClassVar[bool] = False
    has_source: ClassVar[bool] = False
    summary: ClassVar[Summary] = "text"

    @property
    def start(self) -> str:
        """The special token that the decoder starts from, "" without one."""
        return ""

    def max_length(self, lengths: MaxLengths) -> int:
        """Return how long a sequence of the model can become: source and target are one."""
        return lengths.joined

    @abstractmethod
    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        """Ids, targets, weights, positions, mask.

        Raises:
            UserError: the objective's examples are not of this layout's form.
        """
