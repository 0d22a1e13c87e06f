"""Embeddings that begin as word vectors from counts of neighbours in the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from foreword.settings.ranges import Count
from foreword.text.tokenizer import Tokenizer
from foreword.train.embedding_init._contract import EmbeddingInit, FirstVectors, Text
from foreword.types import Array
from foreword.vectors.cooccurrence import LEAST_WORDS, flops_of, learn_vectors


@dataclass(frozen=True)
class Cooccurrence(EmbeddingInit):
    """Word vectors from counts of neighbours, factorised (`foreword.vectors.cooccurrence`).

    They are part of the budget in FLOPs or hours. Characters, and other vocabularies too small for
    them, keep random embeddings.

    Also called: PPMI, SVD, LSA, count vectors.
    Reference: Bullinaria & Levy 2007; Levy et al. 2015.

    Attributes:
        tokens: the tokens of the text to count, of a mixture's sources by their shares.
    """

    stage: ClassVar[str] = "counting neighbours, for the first embeddings"

    tokens: Count = 10_000_000

    def source(self, text: Text) -> dict[str, Any]:
        """Return the number of tokens that are counted."""
        return {"tokens": sum(number for _, number in self._counted(text))}

    def vectors(
        self, text: Text, tokenizer: Tokenizer, width: int, seed: int
    ) -> FirstVectors | None:
        """Return the vectors of the words; None if they are fewer than two for each column."""
        is_word = ~tokenizer.vocab.is_special
        learned = learn_vectors(self._counted(text), is_word, width, seed)
        return None if learned is None else FirstVectors(learned.vectors, learned.flops)

    def _counted(self, text: Text) -> list[tuple[Array, int]]:
        """Return the tokens of each source and how many of them are counted."""
        number = min(self.tokens, sum(len(tokens) for tokens, _ in text))
        return [(tokens, round(share * number)) for tokens, share in text]

    def most_flops(self, words: int, width: int) -> float:
        """Return the operations of the decomposition."""
        return flops_of(words, width) if words >= LEAST_WORDS * width else 0.0
