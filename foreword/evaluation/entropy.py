"""Entropies by counting: the losses of unigram and bigram models, as baselines.

They are lines in the plot of a learning curve: a network whose held-out loss stays above the
bigram's has learned less than a table of counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.types import Array

MAX_TOKENS = 50_000_000  # the default maximum to count: a few seconds, about 2 GB


@dataclass(frozen=True)
class BigramCounts:
    """The counts of tokens, and of pairs of neighbours within a document.

    Attributes:
        vocab: number of ids.
        unigrams: the count of each token, (vocab,) int64.
        pairs: each pair that occurs, as `first * vocab + second`, sorted; (pairs,) int64.
        pair_counts: the count of each, (pairs,) int64.
        tokens: the number of tokens counted.
    """

    vocab: int
    unigrams: Array
    pairs: Array
    pair_counts: Array
    tokens: int

    @classmethod
    def of(cls, shards: Shards, vocab: int, max_tokens: int = MAX_TOKENS) -> BigramCounts:
        """Count a corpus, or its first `max_tokens` tokens.

        Raises:
            UserError: it has ids beyond the vocabulary.
        """
        tokens = _tokens(shards, max_tokens, vocab)
        pairs, counts = np.unique(
            _pairs(tokens, _is_first(shards, max_tokens), vocab), return_counts=True
        )
        unigrams = np.bincount(tokens, minlength=vocab)
        return cls(vocab, unigrams, pairs, counts, len(tokens))

    @property
    def unigram_entropy(self) -> float:
        """H(w) of the counted text, in nats per token."""
        return _entropy(self.unigrams)

    @property
    def bigram_entropy(self) -> float:
        """H(w | the token before) of the counted text, in nats per token."""
        firsts = np.bincount(self.pairs // self.vocab, weights=self.pair_counts)
        return _entropy(self.pair_counts) - _entropy(firsts)

    def unigram_nats(self, tokens: Array) -> Array:
        """Return -log p(token), add-one smoothed; (...) -> (...)."""
        p = (self.unigrams + 1) / (self.unigrams.sum() + self.vocab)
        return np.asarray(-np.log(p)[tokens])

    def bigram_nats(self, pairs: Array) -> Array:
        """Return -log p(second | first) of pairs `first * vocab + second`; (...) -> (...).

        Interpolated absolute discounting (Ney, Essen & Kneser 1994): n1 / (n1 + 2 n2) is subtracted
        from the count of each pair, and goes to the unigram model. The probabilities of all second
        tokens sum to 1.
        """
        # The discount, and the counts by first token.
        once, twice = (int((self.pair_counts == n).sum()) for n in (1, 2))
        discount = once / (once + 2 * twice) if once and twice else 0.5
        first = self.pairs // self.vocab
        count_of_first = np.bincount(first, weights=self.pair_counts, minlength=self.vocab)
        pairs_of_first = np.bincount(first, minlength=self.vocab)
        # Look up the pairs.
        at = np.searchsorted(self.pairs, pairs)
        at = np.minimum(at, max(0, len(self.pairs) - 1))
        is_seen = self.pairs[at] == pairs if len(self.pairs) else np.zeros(pairs.shape, bool)
        counts = np.where(is_seen, self.pair_counts[at] if len(self.pairs) else 0, 0)
        total = count_of_first[pairs // self.vocab]
        discounted = discount * pairs_of_first[pairs // self.vocab]
        unigram = np.exp(-self.unigram_nats(pairs % self.vocab))
        # After an unseen first token, the unigram alone.
        with np.errstate(invalid="ignore"):
            p = (np.maximum(counts - discount, 0.0) + discounted * unigram) / np.maximum(total, 1)
        return np.asarray(-np.log(np.where(total > 0, p, unigram)))


@dataclass(frozen=True)
class Baselines:
    """Cross-entropies of held-out text under counts of the training text, in nats per token.

    Attributes:
        unigram: the loss of the unigram model.
        bigram: the loss of the bigram model; the unigram model scores first tokens of documents.
        tokens: the number of held-out tokens scored.
        counted: the number of training tokens counted.
    """

    unigram: float
    bigram: float
    tokens: int
    counted: int


def baselines(
    train: Shards, heldout: Shards, vocab: int, max_tokens: int = MAX_TOKENS
) -> Baselines:
    """Return the losses of unigrams and bigrams of `train` on `heldout`.

    At most `max_tokens` tokens of each text are used.

    Raises:
        UserError: a corpus is empty, or has ids beyond the vocabulary.
    """
    tokens = _tokens(heldout, max_tokens, vocab)
    if not len(tokens) or not len(train.tokens):
        raise UserError("no tokens to count; both training and held-out text are needed")
    counts = BigramCounts.of(train, vocab, max_tokens)
    nats = counts.unigram_nats(tokens)
    firsts = _is_first(heldout, max_tokens)
    bigram = nats[firsts].sum() + counts.bigram_nats(_pairs(tokens, firsts, vocab)).sum()
    return Baselines(float(nats.mean()), float(bigram) / len(tokens), len(tokens), counts.tokens)


def bits_per_byte(nats_per_token: float, bytes_per_token: float) -> float:
    """Convert nats per token to bits per byte of text."""
    return nats_per_token / math.log(2) / bytes_per_token


def _tokens(shards: Shards, max_tokens: int, vocab: int) -> Array:
    """Return the first `max_tokens` tokens, (tokens,) int64."""
    tokens = np.asarray(shards.tokens[:max_tokens], dtype=np.int64)
    if len(tokens) and tokens.max() >= vocab:
        raise UserError(f"the text has token {tokens.max()}; the vocabulary ends at {vocab - 1}")
    return tokens


def _is_first(shards: Shards, max_tokens: int) -> Array:
    """Return where documents begin in the first `max_tokens` tokens, (tokens,) bool."""
    firsts = np.zeros(min(max_tokens, len(shards.tokens)), dtype=bool)
    starts = np.asarray(shards.document_starts)
    firsts[starts[starts < len(firsts)]] = True
    return firsts


def _pairs(tokens: Array, is_first: Array, vocab: int) -> Array:
    """Return each pair of neighbours within a document as `first * vocab + second`; (pairs,)."""
    return np.asarray((tokens[:-1] * vocab + tokens[1:])[~is_first[1:]])


def _entropy(counts: Array) -> float:
    """Return the entropy of the distribution of counts, in nats."""
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())
