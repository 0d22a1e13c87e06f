"""Words and their vectors: nearest neighbours, similarity and analogies."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foreword.errors import UserError
from foreword.types import Array

_ASKED = 512  # vectors compared with all words at once
_NEAR, _NAMED = 0.6, 3  # share of letters in common that makes a spelling near; how many are named
_SOUGHT = 20_000  # of the most frequent words a spelling that is near to none is compared with


@dataclass(frozen=True)
class Neighbour:
    """A word and the cosine of its vector with the query's."""

    word: str
    cosine: float


@dataclass(frozen=True)
class WordTable:
    """The vectors of words, the most frequent first.

    Attributes:
        words: the words as they are shown, each once.
        vectors: the vector of each, (words, d_model) float32.
        spell: returns the vector of a text that is not among the words, (d_model,) or None.
        simplify: returns a word as the tokenizer normalises it, lower-cased or not.
        cut: returns the pieces of a text in the vocabulary.
    """

    words: Sequence[str]
    vectors: Array
    spell: Callable[[str], Array | None]
    simplify: Callable[[str], str]
    cut: Callable[[str], Sequence[str]]

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def index(self) -> dict[str, int]:
        """The index of each word."""
        return {word: n for n, word in enumerate(self.words)}

    @cached_property
    def unit(self) -> Array:
        """The vectors with length 1, those of length 0 as they are; (words, d_model) float32."""
        return normalised(self.vectors)

    def place(self, word: str) -> int | None:
        """Return the index of a word in the table, None if it is not there."""
        return self.index.get(word, self.index.get(self.simplify(word)))

    def vector(self, word: str) -> Array | None:
        """Return a word's vector, (d_model,), None if it has none."""
        place = self.place(word)
        if place is not None:
            found: Array = self.vectors[place]
            return found
        return self.spell(word)

    def nearest(self, word: str, top: int = 10) -> list[Neighbour]:
        """Return the words with the greatest cosine to `word`, without `word` itself.

        Raises:
            UserError: the word is empty, or has no vector; the message names similar spellings.
        """
        if not word.strip():
            raise UserError("a word that is empty has no neighbours; name another")
        vector = self.vector(word)
        if vector is None:
            raise UserError(f"'{word}' is not in the vocabulary{self._nearly(word)}")
        cosines = self.unit @ normalised(vector)
        itself = self.place(word)
        if itself is not None:
            cosines[itself] = -np.inf
        order = np.argsort(-cosines, kind="stable")[: min(top, len(self) - (itself is not None))]
        return [Neighbour(self.words[n], float(cosines[n])) for n in order]

    def _nearly(self, word: str) -> str:
        """Return the most similar spellings as the end of a message."""
        plain = self.simplify(word)
        close = difflib.get_close_matches(plain, self.words, n=_NAMED, cutoff=_NEAR)
        if len(close) < _NAMED:  # whatever comes next; of all words it would take seconds
            others = [other for other in self.words[:_SOUGHT] if other not in close]
            close += difflib.get_close_matches(plain, others, n=_NAMED - len(close), cutoff=0.0)
        return f"; nearest in spelling: {', '.join(map(repr, close))}" if close else ""

    def similarity(self, one: str, other: str) -> float | None:
        """Return the cosine of two words, None if one of them has no vector."""
        pair = [self.vector(word) for word in (one, other)]
        if any(vector is None for vector in pair):
            return None
        a, b = (normalised(np.asarray(vector)) for vector in pair)
        return float(a @ b)

    def complete(self, questions: Array, most: int) -> Array:
        """Complete analogies "a is to b as c is to ?" by the word nearest to b - a + c.

        Args:
            questions: indices of a, b and c, (questions, 3) int64; they are not answers.
            most: the number of most frequent words to choose from.

        Returns:
            The index of each answer, (questions,) int64.
        """
        found = [np.empty(0, dtype=np.int64)]
        for at in range(0, len(questions), _ASKED):
            some = questions[at : at + _ASKED]
            a, b, c = (self.unit[some[:, n]] for n in range(3))
            cosines = (b - a + c) @ self.unit[:most].T
            rows, columns = np.nonzero(some < most)
            cosines[rows, some[rows, columns]] = -np.inf
            found.append(cosines.argmax(axis=1))
        return np.concatenate(found)


def normalised(vectors: Array) -> Array:
    """Return vectors divided by their length; those of length 0 stay 0; (..., d_model)."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: Array = vectors / np.where(lengths > 0, lengths, 1)
    return unit
