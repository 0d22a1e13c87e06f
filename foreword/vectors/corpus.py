"""The words of texts and their windows, the input of all word-vector training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from foreword.errors import UserError
from foreword.types import Array

CHUNK = 1 << 17  # tokens read at once; a window does not cross their ends


@dataclass(frozen=True)
class Windows:
    """Words in the order of the text, with the extent of the window of each.

    Attributes:
        ids: (words,) int64.
        left: words before it within its window, (words,) int64.
        right: words after it within its window, (words,) int64.
        progress: the share of all epochs that is done before them.
    """

    ids: Array
    left: Array
    right: Array
    progress: float

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class WordCorpus:
    """The words of texts; special tokens and words outside the vocabulary are dropped.

    Attributes:
        tokens: the tokens of all texts, concatenated; (tokens,), may be memory-mapped.
        starts: the first token of each text, and the end; (texts + 1,) int64.
        is_word: which tokens are words, (vocab,) bool.
        counts: the count of each token, 0 for tokens that are not words; (vocab,) int64.
        check: called before tokens are read; raises where they no longer can be.
    """

    tokens: Array
    starts: Array
    is_word: Array
    counts: Array
    check: Callable[[], None] = lambda: None

    @classmethod
    def of(
        cls,
        tokens: Array,
        starts: Array,
        is_word: Array,
        check: Callable[[], None] = lambda: None,
    ) -> WordCorpus:
        """Count the words of texts.

        Raises:
            UserError: fewer than two different words.
        """
        counts = np.zeros(len(is_word), dtype=np.int64)
        for at in range(0, len(tokens), CHUNK):
            check()
            counts += np.bincount(tokens[at : at + CHUNK], minlength=len(is_word))
        counts[~is_word] = 0
        if (counts > 0).sum() < 2:
            raise UserError(
                "the text has fewer than two different words that the tokenizer knows, so no word "
                "has a context; give more text, or a lower tokenizer.min_count"
            )
        return cls(tokens, starts, is_word, counts, check)

    @property
    def total(self) -> int:
        """Number of words."""
        return int(self.counts.sum())

    def texts(self) -> Iterator[Array]:
        """Yield all words of each text, without subsampling; (words,) int64 each.

        A text that crosses the end of a chunk is cut there.
        """
        for at in range(0, len(self.tokens), CHUNK):
            ids, text = self._chunk(at)
            parts = np.split(ids, np.flatnonzero(np.diff(text)) + 1)
            yield from (part for part in parts if len(part))

    def keep_probabilities(self, subsample: float) -> Array:
        """Return the probability that subsampling keeps each word, (vocab,) float64.

        The formula is that of the released word2vec, sqrt(t / f) + t / f; the paper's is
        sqrt(t / f).

        Args:
            subsample: t: words with a greater share f of the text are subsampled; 0 keeps all.
        """
        if not subsample:
            return np.ones(len(self.counts))
        share = np.maximum(self.counts, 1) / max(self.total, 1)
        return np.minimum(1.0, np.sqrt(subsample / share) + subsample / share)

    def windows(self, epochs: int, window: int, subsample: float, seed: int) -> Iterator[Windows]:
        """Yield all words of all epochs with windows of 1 to `window` words on each side.

        The random draws depend only on the seed, the epoch and the position in the text.
        """
        keep, tokens = self.keep_probabilities(subsample), len(self.tokens)
        for epoch in range(epochs):
            for at in range(0, tokens, CHUNK):
                rng = np.random.default_rng([seed, epoch, at])
                ids, text = self._chunk(at)
                is_kept = rng.random(len(ids)) < keep[ids]
                ids, text = ids[is_kept], text[is_kept]
                reach = rng.integers(1, window + 1, len(ids))
                before, after = _neighbours_in_text(text)
                done = (epoch + at / tokens) / epochs
                yield Windows(ids, np.minimum(reach, before), np.minimum(reach, after), done)

    def _chunk(self, at: int) -> tuple[Array, Array]:
        """Return the words from position `at` on, and the index of each one's text."""
        self.check()
        ids = np.asarray(self.tokens[at : at + CHUNK], dtype=np.int64)
        is_word = self.is_word[ids]
        positions = at + np.flatnonzero(is_word)
        return ids[is_word], np.searchsorted(self.starts, positions, side="right")


def _neighbours_in_text(text: Array) -> tuple[Array, Array]:
    """Return the number of words before and after each in its text; (words,) int64 each."""
    positions = np.arange(len(text))
    first = np.concatenate([[0], np.flatnonzero(np.diff(text)) + 1]).astype(np.int64)
    lengths = np.diff(np.append(first, len(text)))
    before = positions - np.repeat(first, lengths)
    return before, np.repeat(lengths, lengths) - 1 - before
