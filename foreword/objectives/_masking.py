"""Hiding tokens where they stand, as every cloze does: which may be hidden, and behind what."""

from __future__ import annotations

import numpy as np

from foreword.data.rng import RowRng
from foreword.types import Array, Example, Rows, Tokens, Vocab


def require_shares(mask: float, random: float) -> None:
    """Make sure that two shares of what is chosen leave no less than none of it.

    Raises:
        ValueError: they are more than all of it.
    """
    if mask + random > 1 + 1e-9:
        raise ValueError(
            f"mask: mask and random are shares of what is chosen and at most 1 together, "
            f"got {mask} and {random}"
        )


def candidates_of(rows: Rows, vocab: Vocab) -> Array:
    """What may be hidden: all but special tokens and padding, (batch, length) bool."""
    return np.asarray(~vocab.is_special[rows.ids] & (rows.documents >= 0))


def quota(candidates: Array, rate: float) -> Array:
    """How many tokens of each row are hidden: its share, at least one if it has any; (batch,)."""
    there_are = candidates.sum(1)
    wanted = np.rint(rate * there_are).astype(np.int64)
    return np.asarray(np.minimum(np.maximum(wanted, 1), there_are))


def word_starts(rows: Rows, candidates: Array, vocab: Vocab) -> Array:
    """Where words begin, (batch, length) bool; what is no candidate is a word of its own."""
    first = vocab.starts_word[rows.ids] | ~candidates | (rows.positions == 0)
    first[:, 0] = True
    first[:, 1:] |= ~candidates[:, :-1]  # what follows [CLS] or [UNK] begins anew
    return np.asarray(first)


def random_ordinary(rng: RowRng, length: int, vocab: Vocab) -> Array:
    """A random ordinary token for each place, all equally likely; (batch, length) int64."""
    ordinary = np.flatnonzero(~vocab.is_special)
    return np.asarray(ordinary[rng.integers(len(ordinary), length)])


def random_by_count(rng: RowRng, length: int, vocab: Vocab) -> Array:
    """A random ordinary token for each place, as likely as frequent; (batch, length) int64.

    All are equally likely where the text's counts are not known.
    """
    if vocab.counts is None:
        return random_ordinary(rng, length, vocab)
    sums = np.cumsum(np.where(vocab.is_special, 0, vocab.counts))
    place = (rng.uniform(length) * sums[-1]).astype(np.int64)  # among all ordinary tokens there are
    return np.asarray(np.searchsorted(sums, place, side="right"))


def mask_tokens(ids: Array, hidden: Array, behind: Array, others: Array, vocab: Vocab) -> Array:
    """What is shown of `ids`, (batch, length) int64.

    Args:
        ids: the tokens.
        hidden: those that become [MASK], (batch, length) bool.
        behind: those that become another token, (batch, length) bool.
        others: these tokens.
        vocab: knows [MASK].
    """
    return np.asarray(np.where(hidden, vocab.id("[MASK]"), np.where(behind, others, ids)))


def in_place(
    rows: Rows, inputs: Array, chosen: Array, uniform_draws: Array | None = None
) -> Example:
    """The example that shows `inputs` and asks for the chosen tokens, where they stand."""
    return Example(
        source=Tokens(inputs, rows.documents, rows.positions, rows.segments),
        target=Tokens(rows.ids, rows.documents, rows.positions),
        weights=chosen.astype(np.float32),
        is_aligned=True,
        labels=rows.labels,
        uniform_draws=uniform_draws,
    )
