"""The characters of a tokenizer's training text, and the vocabulary that they require.

They are counted before the training: in Korean or Chinese they alone can fill a small vocabulary,
which the trainers of WordPiece and Unigram find out after minutes, if at all.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tokenizers import Tokenizer as Engine

from foreword.errors import VocabSizeError
from foreword.text import special
from foreword.text.sample import Sample

_COUNTED = 2_000_000  # characters of text whose words are counted for a proposal
_COVERAGES = (0.9999, 0.9995, 0.999, 0.995, 0.99, 0.98, 0.95)


@dataclass(frozen=True)
class Alphabet:
    """The characters that a vocabulary of pieces must hold.

    Attributes:
        sample: the training text.
        coverage: share of the text that the characters to keep make up.
        engine: normalises the text and cuts it into words.
        marks_inner: whether a character inside a word is another token than at its start.
    """

    sample: Sample
    coverage: float
    engine: Engine
    marks_inner: bool = False

    def require_room(self, vocab: int, letters: int | None = None) -> None:
        """Check that a vocabulary has room for the characters, before anything is trained.

        Args:
            vocab: size of the vocabulary, special tokens included.
            letters: number of tokens of one character; default: at least the characters.

        Raises:
            VocabSizeError: it has not; a size with room for words is proposed.
        """
        count = len(self._alphabet(self.coverage)) if letters is None else letters
        if count + len(special.ALL) <= vocab:
            return
        words, tokens = self._count_words()
        letters = letters or max(count, tokens)
        least = letters + len(special.ALL)
        size = _round_up(least + (letters if words is None else words))
        raise VocabSizeError(
            f"tokenizer.vocab: {vocab:,} is too small for this text, whose single characters and "
            f"the special tokens are {least:,}; use tokenizer.vocab={size}, with room for the "
            f"words that make up half of the text{self._lower_coverage(vocab, letters)}",
            size,
        )

    def _alphabet(self, coverage: float) -> set[str]:
        """Return the characters to keep, as the engine normalises them.

        Combining marks, which may become part of another character, are left out.
        """
        normalizer, characters = self.engine.normalizer, set[str]()
        for character in self.sample.frequent(coverage):
            text = normalizer.normalize_str(character) if normalizer else character
            characters.update(c for c in text if not (c.isspace() or unicodedata.combining(c)))
        return characters

    def _count_words(self) -> tuple[int | None, int]:
        """Count words and tokens of one character in the beginning of the text.

        Returns:
            The number of words of several characters among those that make up half of the text;
            None if words that occur twice do not, as in a script without spaces. And the number of
            tokens of one character.
        """
        counts, left = Counter[str](), _COUNTED
        for text in self.sample.texts():
            counts.update(self._words(text))
            left -= len(text)
            if left < 0:
                break
        characters = self._alphabet(self.coverage)
        first = characters.intersection(word[0] for word in counts)
        inner = characters.intersection("".join(word[1:] for word in counts))
        tokens = len(first) + len(inner) if self.marks_inner else len(first | inner)
        half, size, words = sum(counts.values()) / 2, 0, 0
        for word, count in counts.most_common():
            if size >= half:
                return words, tokens
            if count < 2:
                break
            size += count
            words += len(word) > 1
        return None, tokens

    def _words(self, text: str) -> Iterator[str]:
        if self.engine.normalizer is not None:
            text = self.engine.normalizer.normalize_str(text)
        return (word for word, _ in self.engine.pre_tokenizer.pre_tokenize_str(text) if word)

    def _lower_coverage(self, vocab: int, letters: int) -> str:
        """Return the advice of a coverage whose characters fill at most half of the vocabulary."""
        tokens_of_each = letters / max(1, len(self._alphabet(self.coverage)))
        for lower in _COVERAGES:
            needed = len(special.ALL) + tokens_of_each * len(self._alphabet(lower))
            if lower < self.coverage and needed <= vocab / 2:
                return (
                    f"; or tokenizer.coverage={lower:g}, which makes the rarest {1 - lower:.2%} of "
                    "its characters [UNK]"
                )
        return ""


def _round_up(size: int) -> int:
    """Return a size rounded up to two digits."""
    unit = 10 ** max(0, math.floor(math.log10(size)) - 1)
    return int(-(-size // unit) * unit)
