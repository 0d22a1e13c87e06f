"""The contract of the first values of token embeddings, the kinds in `train/embedding_init/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from foreword.errors import UserError
from foreword.settings.ranges import Ranged
from foreword.text.tokenizer import Tokenizer
from foreword.types import Array

# Of each source of text: its tokens, (tokens,), and its share in training.
Text = Sequence[tuple[Array, float]]


@dataclass(frozen=True)
class FirstVectors:
    """Vectors that the embeddings of tokens begin as.

    Attributes:
        vectors: a vector per token, zeros where it stays random; (vocab, width) float32.
        flops: operations that they took, a part of the budget.
    """

    vectors: Array
    flops: float = 0.0


class EmbeddingInit(Ranged, ABC):
    """How the embeddings of tokens begin: a kind in `train/embedding_init/`.

    Vectors are scaled to the length that random ones have on average. A table that is narrower than
    the widest gets their first columns.

    Attributes:
        is_random: whether they keep the random numbers that all weights begin with.
        stage: what the work is called while it lasts.
    """

    is_random: ClassVar[bool] = False
    stage: ClassVar[str] = "making the first embeddings"

    @abstractmethod
    def source(self, text: Text) -> dict[str, Any]:
        """Return what the vectors come from, as `run.json` has it: all that tells them from others.

        Either the number of `tokens` of the text, or a `file` with its checksum.

        Args:
            text: the text of the run.

        Raises:
            UserError: the file cannot be read.
        """

    @abstractmethod
    def vectors(
        self, text: Text, tokenizer: Tokenizer, width: int, seed: int
    ) -> FirstVectors | None:
        """Return the vectors; None if there are too few words for any.

        Args:
            text: the text of the run.
            tokenizer: the tokenizer of the run.
            width: columns of the vectors.
            seed: the seed of the run.
        """

    def require_fit(self, widths: Sequence[int]) -> None:
        """Check that a model can begin so, before text is read.

        Args:
            widths: the widths of the model's tables of embeddings of tokens.

        Raises:
            UserError: it has none, or what the vectors are read from does not fit them.
        """
        if not widths:
            raise UserError(
                "train.embedding_init: the model has no table of embeddings of tokens; set it to "
                "random"
            )

    def most_flops(self, words: int, width: int) -> float:
        """Return the most operations that vectors of so many words take."""
        return 0.0
