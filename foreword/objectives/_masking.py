"""Masking tokens in place: which tokens may be masked, how many, and what replaces them."""

from __future__ import annotations

import numpy as np

from foreword.data.rng import RowRng
from foreword.types import Array, Example, PairLabels, Rows, Tokens, UniformDraws, Vocab


def require_shares(mask: float, random: float) -> None:
    """Check that the shares of chosen tokens sum to at most 1.

    Raises:
        ValueError: they sum to more than 1.
    """
    if mask + random > 1 + 1e-9:
        raise ValueError(
            f"mask: mask and random are shares of the chosen tokens and must sum to at most 1, "
            f"got {mask} and {random}"
        )


def candidates_of(rows: Rows, vocab: Vocab) -> Array:
    """Return which tokens may be masked: all but special tokens and padding; (batch, length)."""
    return np.asarray(~vocab.is_special[rows.ids] & (rows.documents >= 0))


def number_to_mask(candidates: Array, rate: float) -> Array:
    """Return how many tokens of each row to mask: `rate` of its candidates, at least 1."""
    available = candidates.sum(1)
    number = np.rint(rate * available).astype(np.int64)
    return np.asarray(np.minimum(np.maximum(number, 1), available))


def choose(candidates: Array, draws: Array, number: Array) -> Array:
    """Return `number` (batch,) of each row's candidates, by the least draws; (batch, length)."""
    draws = np.where(candidates, draws, 2.0)
    last = np.take_along_axis(np.sort(draws, axis=1), np.maximum(number - 1, 0)[:, None], axis=1)
    return np.asarray(candidates & (draws <= last) & (number[:, None] > 0))


def mask_share(candidates: Array, rng: RowRng) -> tuple[Array, Array]:
    """Return which candidates a random share of masking hides, and the weight of each.

    Of the n candidates of a row 1, 2, ... or n are masked, every number equally likely, and which
    ones is random; each has the weight 1/t, t the share, so that a row's weights sum to n.

    Returns:
        Which are masked, (batch, length) bool, and 1/t there, else 0, (batch, length) float64.
    """
    available = candidates.sum(1)
    number = np.minimum(1 + (rng.evenly() * available).astype(np.int64), available)
    chosen = choose(candidates, rng.uniform(candidates.shape[1]), number)
    return chosen, chosen * (available / np.maximum(number, 1))[:, None]


def word_starts(rows: Rows, candidates: Array, vocab: Vocab) -> Array:
    """Return where words begin, (batch, length) bool; each non-candidate is its own word."""
    first = vocab.starts_word[rows.ids] | ~candidates | (rows.positions == 0)
    first[:, 0] = True
    first[:, 1:] |= ~candidates[:, :-1]  # a word begins after [CLS] or [UNK]
    return np.asarray(first)


def random_ordinary(rng: RowRng, length: int, vocab: Vocab) -> Array:
    """Sample an ordinary token for each position, uniformly; (batch, length) int64."""
    ordinary = np.flatnonzero(~vocab.is_special)
    return np.asarray(ordinary[rng.integers(len(ordinary), length)])


def random_by_count(rng: RowRng, length: int, vocab: Vocab) -> Array:
    """Sample an ordinary token for each position from the unigram distribution; (batch, length).

    Uniform where `vocab.counts` is None.
    """
    if vocab.counts is None:
        return random_ordinary(rng, length, vocab)
    sums = np.cumsum(np.where(vocab.is_special, 0, vocab.counts))
    occurrence = (rng.uniform(length) * sums[-1]).astype(np.int64)  # of an ordinary token
    return np.asarray(np.searchsorted(sums, occurrence, side="right"))


def random_by_class(rng: RowRng, ids: Array, classes: Array, vocab: Vocab) -> Array:
    """Sample a token of the class of each token, by its frequency; (batch, length).

    Args:
        rng: of the rows.
        ids: the tokens, (batch, length) int64.
        classes: class of each token of the vocabulary, -1 for special ones, (size,) int64.
        vocab: its counts, of which each is one more here, so that every class has tokens.
    """
    counts = 1 if vocab.counts is None else vocab.counts + 1
    ordered = np.argsort(classes, kind="stable")
    sums = np.cumsum(np.where(vocab.is_special, 0, counts)[ordered])
    # Of each class, what is summed before it and after it.
    first = np.searchsorted(classes[ordered], classes[ids], "left")
    last = np.searchsorted(classes[ordered], classes[ids], "right")
    before, after = np.where(first > 0, sums[first - 1], 0), sums[last - 1]
    occurrence = before + (rng.uniform(ids.shape[1]) * (after - before)).astype(np.int64)
    drawn = np.searchsorted(sums, occurrence, side="right")
    return np.asarray(ordered[drawn.clip(max=len(sums) - 1)])


def mask_tokens(
    ids: Array, is_masked: Array, is_random: Array, random_ids: Array, vocab: Vocab
) -> Array:
    """Return the corrupted inputs, (batch, length) int64.

    Args:
        ids: the tokens.
        is_masked: which become [MASK], (batch, length) bool.
        is_random: which become a random token, (batch, length) bool.
        random_ids: the random tokens, (batch, length) int64.
        vocab: to look up [MASK].
    """
    return np.asarray(np.where(is_masked, vocab.id("[MASK]"), np.where(is_random, random_ids, ids)))


def in_place(
    rows: Rows, inputs: Array, chosen: Array, uniform_draws: Array | None = None
) -> Example:
    """Return the example whose source is `inputs` and whose targets are the chosen tokens.

    `chosen` is bool, or the weight of each token.
    """
    draws = () if uniform_draws is None else (UniformDraws(uniform_draws),)
    return Example(
        source=Tokens(inputs, rows.documents, rows.positions, rows.segments),
        target=Tokens(rows.ids, rows.documents, rows.positions),
        weights=chosen.astype(np.float32),
        is_aligned=True,
        parts=(*rows.parts_of(PairLabels), *draws),
    )
