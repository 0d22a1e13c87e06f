"""Entropy of a token stream by counting: what a model that reads one word back would reach.

These lines lie beside a learning curve. A network whose held-out loss stays above the bigram's has
learned less than a table of counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.types import Array

MOST = 50_000_000  # tokens that are counted unless said otherwise: a few seconds, about 2 GB


@dataclass(frozen=True)
class BigramCounts:
    """How often each token, and each pair of neighbours within a document, occurs.

    Attributes:
        vocab: number of ids.
        unigrams: (vocab,) int64.
        pairs: each pair that occurs as `first * vocab + second`, sorted; (pairs,) int64.
        pair_counts: how often; (pairs,) int64.
        tokens: how many tokens were counted.
    """

    vocab: int
    unigrams: Array
    pairs: Array
    pair_counts: Array
    tokens: int

    @classmethod
    def of(cls, shards: Shards, vocab: int, most: int = MOST) -> BigramCounts:
        """Counts a corpus, or its first `most` tokens.

        Raises:
            UserError: it has ids beyond the vocabulary.
        """
        tokens = _tokens(shards, most, vocab)
        pairs, counts = np.unique(
            _pairs(tokens, _is_first(shards, most), vocab), return_counts=True
        )
        unigrams = np.bincount(tokens, minlength=vocab)
        return cls(vocab, unigrams, pairs, counts, len(tokens))

    @property
    def unigram_entropy(self) -> float:
        """H(w), in nats per token, of the counts themselves."""
        return _entropy(self.unigrams)

    @property
    def bigram_entropy(self) -> float:
        """H(w | the token before), in nats per token, of the counts themselves."""
        firsts = np.bincount(self.pairs // self.vocab, weights=self.pair_counts)
        return _entropy(self.pair_counts) - _entropy(firsts)

    def unigram_nats(self, tokens: Array) -> Array:
        """-log p(token), add-one smoothed; of any shape."""
        p = (self.unigrams + 1) / (self.unigrams.sum() + self.vocab)
        return np.asarray(-np.log(p)[tokens])

    def bigram_nats(self, pairs: Array) -> Array:
        """-log p(second | first) of pairs `first * vocab + second`; of any shape.

        Interpolated absolute discounting (Ney, Essen & Kneser 1994): each pair seen gives up
        n1 / (n1 + 2 n2), and what a first token's pairs give up goes to the unigram. Over all
        second tokens the probabilities add up to 1.
        """
        once, twice = (int((self.pair_counts == n).sum()) for n in (1, 2))
        discount = once / (once + 2 * twice) if once and twice else 0.5
        first = self.pairs // self.vocab
        of_first = np.bincount(first, weights=self.pair_counts, minlength=self.vocab)
        kinds_of_first = np.bincount(first, minlength=self.vocab)
        at = np.searchsorted(self.pairs, pairs)
        at = np.minimum(at, max(0, len(self.pairs) - 1))
        seen = self.pairs[at] == pairs if len(self.pairs) else np.zeros(pairs.shape, bool)
        counts = np.where(seen, self.pair_counts[at] if len(self.pairs) else 0, 0)
        total = of_first[pairs // self.vocab]
        given_up = discount * kinds_of_first[pairs // self.vocab]
        unigram = np.exp(-self.unigram_nats(pairs % self.vocab))
        # A first token never seen leaves everything to the unigram.
        with np.errstate(invalid="ignore"):
            p = (np.maximum(counts - discount, 0.0) + given_up * unigram) / np.maximum(total, 1)
        return np.asarray(-np.log(np.where(total > 0, p, unigram)))


@dataclass(frozen=True)
class Baselines:
    """Cross-entropies of held-out text under counts of the training text, in nats per token.

    Attributes:
        unigram: each token by its frequency.
        bigram: each token given the one before; the first of a document by its frequency.
        tokens: scored, of the held-out text.
        counted: tokens of the training text that were counted.
    """

    unigram: float
    bigram: float
    tokens: int
    counted: int


def baselines(train: Shards, heldout: Shards, vocab: int, most: int = MOST) -> Baselines:
    """What unigram and bigram counts of `train` reach on `heldout`, at most `most` tokens of each.

    Raises:
        UserError: a corpus is empty, or has ids beyond the vocabulary.
    """
    tokens = _tokens(heldout, most, vocab)
    if not len(tokens) or not len(train.tokens):
        raise UserError("no tokens to count; both training and held-out text are needed")
    counts = BigramCounts.of(train, vocab, most)
    nats = counts.unigram_nats(tokens)
    firsts = _is_first(heldout, most)
    bigram = nats[firsts].sum() + counts.bigram_nats(_pairs(tokens, firsts, vocab)).sum()
    return Baselines(float(nats.mean()), float(bigram) / len(tokens), len(tokens), counts.tokens)


def bits_per_byte(nats_per_token: float, bytes_per_token: float) -> float:
    """Nats per token as bits per byte of text."""
    return nats_per_token / math.log(2) / bytes_per_token


def _tokens(shards: Shards, most: int, vocab: int) -> Array:
    """The first `most` tokens, (tokens,) int64."""
    tokens = np.asarray(shards.tokens[:most], dtype=np.int64)
    if len(tokens) and tokens.max() >= vocab:
        raise UserError(f"the text has token {tokens.max()}; the vocabulary ends at {vocab - 1}")
    return tokens


def _is_first(shards: Shards, most: int) -> Array:
    """Where documents begin among the first `most` tokens, (tokens,) bool."""
    firsts = np.zeros(min(most, len(shards.tokens)), dtype=bool)
    starts = np.asarray(shards.document_starts)
    firsts[starts[starts < len(firsts)]] = True
    return firsts


def _pairs(tokens: Array, is_first: Array, vocab: int) -> Array:
    """Each pair of neighbours within a document as `first * vocab + second`, (pairs,) int64."""
    return np.asarray((tokens[:-1] * vocab + tokens[1:])[~is_first[1:]])


def _entropy(counts: Array) -> float:
    """Of the distribution that the counts make, in nats."""
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())
