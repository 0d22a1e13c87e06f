"""Word vectors from counts: how often each word stands beside which others, factorised.

The counts of each position beside the word are apart, since what stands before a word says
something else than what stands behind it. Positive pointwise mutual information replaces counts,
and a truncated singular value decomposition replaces its columns by a few. There is nothing to
train: a text of ten million tokens takes seconds.

Reference: Schütze 1995, section 2 (positions apart); Bullinaria & Levy 2007 (positive pointwise
mutual information); Levy et al. 2015, sections 2 and 3 (smoothing, weights of singular values).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from foreword.types import Array

REACH = 2  # positions counted on each side
CONTEXTS = 2_000  # the most frequent words, which are counted beside all others
CELLS = 1 << 25  # of the counts of a position: fewer contexts for more words
SMOOTHING = 0.75  # power of the contexts' frequencies
WEIGHT = 0.5  # power of the singular values
OVERSAMPLES, ITERATIONS = 8, 2  # of the randomised decomposition
LEAST_WORDS = 2  # for each column of the vectors
LEAST_COUNTS = 2  # columns of counts for each column of the vectors
BLOCK = 1 << 22  # tokens counted at once
PIECE = 1 << 12  # consecutive tokens of the text


@dataclass(frozen=True)
class CountedVectors:
    """Word vectors and their cost.

    Attributes:
        vectors: vectors of all words, of length 1; zeros for other tokens; (vocab, width) float32.
        tokens: tokens counted.
        flops: operations of the decomposition.
    """

    vectors: Array
    tokens: int
    flops: float

    @property
    def is_known(self) -> Array:
        """Which tokens have a vector, (vocab,) bool."""
        return np.asarray(self.vectors.any(1))


def learn_vectors(
    texts: Sequence[tuple[Array, int]], is_word: Array, width: int, seed: int
) -> CountedVectors | None:
    """Return vectors of the words of texts; None if they have too few for vectors of this width.

    Args:
        texts: tokens, (tokens,), which may be mapped from files, and how many of them to count, in
            pieces evenly spaced over the text; where it has fewer, it is read again.
        is_word: which tokens are words, (vocab,) bool; others have no counts and are no context,
            but keep their positions.
        width: width of the vectors.
        seed: seed of the decomposition.

    Returns:
        Equal numbers for equal arguments, on any number of cores.
    """
    # Their imports take a second.
    from sklearn.utils.extmath import randomized_svd
    from threadpoolctl import threadpool_limits

    # The words, and the most frequent ones as contexts.
    frequency = np.zeros(len(is_word), np.int64)
    for block in _blocks(texts):
        frequency += np.bincount(block, minlength=len(frequency))
    total = int(frequency.sum())
    frequency[~is_word] = 0
    words = np.flatnonzero(frequency)
    if len(words) < LEAST_WORDS * width:
        return None
    count = contexts_of(len(words), width)
    contexts = words[np.argsort(-frequency[words], kind="stable")[:count]]
    # Count, weigh and factorise.
    matrix = _counts(_blocks(texts), len(is_word), words, contexts)
    shares = frequency[words] / frequency.sum(), frequency[contexts] / frequency.sum()
    for of_position in np.split(matrix, 2 * REACH, axis=1):
        _to_information(of_position, *shares)
    with threadpool_limits(1, "blas"):  # more threads round otherwise
        left, values, _ = randomized_svd(
            matrix,
            width,
            n_oversamples=OVERSAMPLES,
            n_iter=ITERATIONS,
            power_iteration_normalizer="QR",
            random_state=seed,
        )
    rows = (left * values**WEIGHT).astype(np.float32)
    vectors = np.zeros((len(is_word), width), np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    vectors[words] = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
    return CountedVectors(vectors, total, flops_of(len(words), width))


def contexts_of(words: int, width: int) -> int:
    """Return the number of contexts that are counted for vectors of a width."""
    least = -(-LEAST_COUNTS * width // (2 * REACH))
    return min(words, max(least, min(CONTEXTS, CELLS // words)))


def flops_of(words: int, width: int) -> float:
    """Return the operations of the decomposition, beside which counting costs little."""
    products = 2 * (1 + ITERATIONS)  # of the counts with a narrow matrix
    return products * 2.0 * words * contexts_of(words, width) * 2 * REACH * (width + OVERSAMPLES)


def _blocks(texts: Sequence[tuple[Array, int]]) -> Iterator[Array]:
    """Yield the tokens to count, some pieces at once, joined; (tokens,) int64 each."""
    for tokens, number in texts:
        pieces = _pieces(len(tokens), number)
        while several := list(islice(pieces, max(1, BLOCK // PIECE))):
            block = [tokens[start:stop] for start, stop in several]
            yield np.concatenate(block).astype(np.int64)


def _pieces(count: int, number: int) -> Iterator[tuple[int, int]]:
    """Yield the beginnings and ends of pieces of a text: all of it if need be, then some."""
    rounds, rest = divmod(number, count) if count else (0, 0)
    for _ in range(rounds):
        yield from ((start, min(start + PIECE, count)) for start in range(0, count, PIECE))
    some = -(-rest // PIECE)  # pieces of which the last may be shorter, evenly spaced
    for n, start in enumerate(np.linspace(0, max(0, count - PIECE), some).astype(int).tolist()):
        yield start, min(start + min(PIECE, rest - n * PIECE), count)


def _counts(blocks: Iterable[Array], vocab: int, words: Array, contexts: Array) -> Array:
    """Return how often each context stands at each position beside each word.

    Args:
        blocks: the text.
        vocab: number of tokens.
        words: the words.
        contexts: the contexts.

    Returns:
        (words, positions * contexts) float32, the positions in the order of the text.
    """
    row, column = np.full(vocab, -1, np.int64), np.full(vocab, -1, np.int64)
    row[words], column[contexts] = np.arange(len(words)), np.arange(len(contexts))
    shape = len(words), len(contexts)
    counts = np.zeros((len(words), 2 * REACH * len(contexts)), np.float32)
    by_position = np.split(counts, 2 * REACH, axis=1)
    for block in blocks:
        rows, columns = row[block], column[block]
        for number, distance in enumerate(d for d in range(-REACH, REACH + 1) if d):
            before, behind = slice(None, -abs(distance)), slice(abs(distance), None)
            word, context = (before, behind) if distance > 0 else (behind, before)
            is_counted = (rows[word] >= 0) & (columns[context] >= 0)
            cells = rows[word][is_counted] * len(contexts) + columns[context][is_counted]
            by_position[number] += np.bincount(cells, minlength=math.prod(shape)).reshape(shape)
    return counts


def _to_information(counts: Array, words: Array, contexts: Array) -> None:
    """Turn counts into positive pointwise mutual information, in place.

    Args:
        counts: (words, contexts) float32.
        words: the share of each word in the text.
        contexts: share of each context.
    """
    smoothed = contexts**SMOOTHING
    smoothed *= contexts.sum() / smoothed.sum()
    counts /= max(1.0, float(counts.sum())) / float(contexts.sum())  # shares of all pairs
    counts /= words.astype(np.float32)[:, None]
    counts /= smoothed.astype(np.float32)
    np.log(counts, out=counts, where=counts > 0)
    np.maximum(counts, 0, out=counts)
