"""Words and their vectors: nearest neighbours, similarity and analogies."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foreword.errors import UserError
from foreword.types import Array

_AT_ONCE = 512  # analogies completed at once
_SIMILARITY = 0.6  # of spellings, as `difflib` measures it, for a suggestion from all words
_SUGGESTIONS = 3  # similar spellings in a message
_FREQUENT = 20_000  # the most frequent words, from which less similar suggestions may come


@dataclass(frozen=True)
class Neighbour:
    """A word and the cosine of its vector with the query's."""

    word: str
    cosine: float


@dataclass(frozen=True)
class WordTable:
    """The vectors of words, the most frequent first.

    Attributes:
        words: the words as displayed, each once.
        vectors: the vector of each, (words, d_model) float32.
        compose: returns the vector of a text outside the table, (d_model,), or None.
        normalise: returns a word as the tokenizer normalises it, such as in lower case.
        split: returns the tokens of a text, as text.
    """

    words: Sequence[str]
    vectors: Array
    compose: Callable[[str], Array | None]
    normalise: Callable[[str], str]
    split: Callable[[str], Sequence[str]]

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def indices(self) -> dict[str, int]:
        """The index of each word."""
        return {word: n for n, word in enumerate(self.words)}

    @cached_property
    def unit_vectors(self) -> Array:
        """The vectors scaled to length 1, zero vectors unchanged; (words, d_model) float32."""
        return to_unit_length(self.vectors)

    def index_of(self, word: str) -> int | None:
        """Return the index of a word in the table, None if it is not in it."""
        return self.indices.get(word, self.indices.get(self.normalise(word)))

    def vector(self, word: str) -> Array | None:
        """Return a word's vector, (d_model,), None if it has none."""
        index = self.index_of(word)
        if index is not None:
            vector: Array = self.vectors[index]
            return vector
        return self.compose(word)

    def nearest(self, word: str, top: int = 10) -> list[Neighbour]:
        """Return the words with the greatest cosine to `word`, without `word` itself.

        Raises:
            UserError: the word is empty, or has no vector; the message names similar spellings.
        """
        if not word.strip():
            raise UserError("an empty word has no neighbours; give a word")
        vector = self.vector(word)
        if vector is None:
            raise UserError(f"'{word}' is not in the vocabulary{self._suggestions(word)}")
        return self.nearest_to(vector, [word], top)

    def nearest_to(self, vector: Array, others: Sequence[str], top: int = 10) -> list[Neighbour]:
        """Return the words with the greatest cosine to a vector (d_model,), without some others."""
        cosines = np.clip(self.unit_vectors @ to_unit_length(vector), -1, 1)  # they are rounded
        left_out = {n for word in others if (n := self.index_of(word)) is not None}
        cosines[list(left_out)] = -np.inf
        order = np.argsort(-cosines, kind="stable")[: min(top, len(self) - len(left_out))]
        return [Neighbour(self.words[n], float(cosines[n])) for n in order]

    def analogy(self, a: str, b: str, c: str, top: int = 10) -> list[Neighbour]:
        """Return the words nearest to b - a + c: a is to b as c is to which word?

        Raises:
            UserError: one of them has no vector.
        """
        words = (a, b, c)
        vectors = [self.vector(word) if word.strip() else None for word in words]
        for word, vector in zip(words, vectors, strict=True):
            if vector is None:
                raise UserError(f"'{word}' is not in the vocabulary{self._suggestions(word)}")
        unit = [to_unit_length(np.asarray(vector)) for vector in vectors]
        return self.nearest_to(unit[1] - unit[0] + unit[2], words, top)

    def _suggestions(self, word: str) -> str:
        """Return the most similar spellings as the end of a message."""
        normal = self.normalise(word)
        close = difflib.get_close_matches(normal, self.words, n=_SUGGESTIONS, cutoff=_SIMILARITY)
        if len(close) < _SUGGESTIONS:  # less similar ones; comparing all words would take seconds
            others = [other for other in self.words[:_FREQUENT] if other not in close]
            close += difflib.get_close_matches(
                normal, others, n=_SUGGESTIONS - len(close), cutoff=0.0
            )
        return f"; nearest in spelling: {', '.join(map(repr, close))}" if close else ""

    def similarity(self, one: str, other: str) -> float | None:
        """Return the cosine of two words, None if one of them has no vector."""
        pair = [self.vector(word) for word in (one, other)]
        if any(vector is None for vector in pair):
            return None
        a, b = (to_unit_length(np.asarray(vector)) for vector in pair)
        return float(np.clip(a @ b, -1, 1))

    def complete(self, questions: Array, most: int) -> Array:
        """Complete analogies "a is to b as c is to ?" by the word nearest to b - a + c.

        Args:
            questions: indices of a, b and c, (questions, 3) int64; they are not answers.
            most: the number of most frequent words to choose from.

        Returns:
            The index of each answer, (questions,) int64.
        """
        answers = [np.empty(0, dtype=np.int64)]
        for at in range(0, len(questions), _AT_ONCE):
            chunk = questions[at : at + _AT_ONCE]
            a, b, c = (self.unit_vectors[chunk[:, n]] for n in range(3))
            cosines = (b - a + c) @ self.unit_vectors[:most].T
            rows, columns = np.nonzero(chunk < most)
            cosines[rows, chunk[rows, columns]] = -np.inf
            answers.append(cosines.argmax(axis=1))
        return np.concatenate(answers)


def to_unit_length(vectors: Array) -> Array:
    """Return vectors divided by their lengths, zero vectors unchanged; (..., d_model)."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: Array = vectors / np.where(lengths > 0, lengths, 1)
    return unit
