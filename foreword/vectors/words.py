"""The words of texts and their windows: what every way of learning word vectors reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from foreword.errors import UserError
from foreword.types import Array

CHUNK = 1 << 17  # tokens read at once; no window goes beyond them


@dataclass(frozen=True)
class Windows:
    """Words in the order of the text, and how far each one's window reaches.

    Attributes:
        ids: (words,) int64.
        left: words before it within its window, (words,) int64.
        right: words after it within its window, (words,) int64.
        progress: share of all epochs that was read before them.
    """

    ids: Array
    left: Array
    right: Array
    progress: float

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Words:
    """Texts as word vectors see them: words alone, what the vocabulary lacks left out.

    Attributes:
        tokens: of texts, one text after the other, (tokens,); may be mapped.
        starts: the first token of each text, and the end; (texts + 1,) int64.
        is_word: which tokens are words, (vocab,) bool.
        counts: how often each token stands there, 0 for all that is no word; (vocab,) int64.
    """

    tokens: Array
    starts: Array
    is_word: Array
    counts: Array

    @classmethod
    def of(cls, tokens: Array, starts: Array, is_word: Array) -> Words:
        """Counts the words of texts.

        Raises:
            UserError: fewer than two different words.
        """
        counts = np.zeros(len(is_word), dtype=np.int64)
        for at in range(0, len(tokens), CHUNK):
            counts += np.bincount(tokens[at : at + CHUNK], minlength=len(is_word))
        counts[~is_word] = 0
        if (counts > 0).sum() < 2:
            raise UserError(
                "the text has fewer than two different words that the tokenizer knows, and so no "
                "word has a context; give more text, or a lower tokenizer.min_count"
            )
        return cls(tokens, starts, is_word, counts)

    @property
    def total(self) -> int:
        """Number of words."""
        return int(self.counts.sum())

    def texts(self) -> Iterator[Array]:
        """The words of each text, nothing left out but what is no word; (words,) int64 each."""
        for at in range(0, len(self.tokens), CHUNK):
            ids, text = self._chunk(at)
            yield from (one for one in np.split(ids, np.flatnonzero(np.diff(text)) + 1) if len(one))

    def kept(self, subsample: float) -> Array:
        """The chance of each word to be read where it stands, (vocab,) float64.

        The formula is that of the released word2vec, sqrt(t / f) + t / f; the paper's is
        sqrt(t / f).

        Args:
            subsample: t: words of a greater share f of the text are thinned; 0 keeps all.
        """
        if not subsample:
            return np.ones(len(self.counts))
        share = np.maximum(self.counts, 1) / max(self.total, 1)
        return np.minimum(1.0, np.sqrt(subsample / share) + subsample / share)

    def windows(self, epochs: int, window: int, subsample: float, seed: int) -> Iterator[Windows]:
        """All words of all epochs with windows of 1 to `window` words on each side.

        Draws depend on the seed, the epoch and the place alone.
        """
        kept, tokens = self.kept(subsample), len(self.tokens)
        for epoch in range(epochs):
            for at in range(0, tokens, CHUNK):
                rng = np.random.default_rng([seed, epoch, at])
                ids, text = self._chunk(at)
                is_read = rng.random(len(ids)) < kept[ids]
                ids, text = ids[is_read], text[is_read]
                reach = rng.integers(1, window + 1, len(ids))
                before, after = _within(text)
                done = (epoch + at / tokens) / epochs
                yield Windows(ids, np.minimum(reach, before), np.minimum(reach, after), done)

    def _chunk(self, at: int) -> tuple[Array, Array]:
        """The words from place `at` on, and the number of each one's text."""
        ids = np.asarray(self.tokens[at : at + CHUNK], dtype=np.int64)
        is_word = self.is_word[ids]
        places = at + np.flatnonzero(is_word)
        return ids[is_word], np.searchsorted(self.starts, places, side="right")


def _within(text: Array) -> tuple[Array, Array]:
    """How many words of the same text stand before and after each; (words,) int64 each."""
    places = np.arange(len(text))
    first = np.concatenate([[0], np.flatnonzero(np.diff(text)) + 1]).astype(np.int64)
    lengths = np.diff(np.append(first, len(text)))
    before = places - np.repeat(first, lengths)
    return before, np.repeat(lengths, lengths) - 1 - before
