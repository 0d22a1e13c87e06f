"""Random numbers that depend only on the seed and the row.

A batch is a pure function of (recipe, step): a row draws the same numbers in any group and on any
process. So the generator is a hash of (seed, row, draw, column), has no state to save, and works on
all rows of a group at once.
"""

from __future__ import annotations

import copy

import numpy as np

from foreword.types import Array

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def mix(x: Array) -> Array:
    """SplitMix64's finaliser (Steele, Lea & Flood 2014): uint64 -> well-mixed uint64."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(x ^ (x >> np.uint64(31)))


class RowRng:
    """Random numbers for a group of rows, which depend on (seed, row number, draw) alone.

    Args:
        seed: the run's seed.
        numbers: the rows' numbers in the order of training; (batch,) int64.
    """

    def __init__(self, seed: int, numbers: Array) -> None:
        with np.errstate(over="ignore"):
            key = mix(np.asarray([seed], dtype=np.uint64) * _GAMMA + np.uint64(1))
            self._even = np.asarray(numbers, dtype=np.uint64) * _GAMMA + key
            self._keys = mix(self._even)
        self._draws = 0

    def select(self, which: Array) -> RowRng:
        """Return the generator of some of the rows, with the same next draws."""
        selected = copy.copy(self)
        selected._keys, selected._even = self._keys[which], self._even[which]
        return selected

    def by_content(self, ids: Array, variants: int) -> RowRng:
        """Return generators of which equal rows have one of `variants`, whatever their numbers.

        Args:
            ids: the rows, (batch, length) int64.
            variants: how many different ones equal rows have; which of them is drawn.
        """
        drawn = self.integers(variants, 1)[:, 0].astype(np.uint64)
        with np.errstate(over="ignore"):
            places = np.arange(1, ids.shape[1] + 1, dtype=np.uint64) * _GAMMA
            content = mix(ids.astype(np.uint64) * _GAMMA + places).sum(axis=1, dtype=np.uint64)
            fixed = copy.copy(self)
            fixed._keys, fixed._draws = mix(content + drawn * _GAMMA), 0
        return fixed

    def bits(self, width: int) -> Array:
        """Draw random 64-bit words, (batch, width) uint64."""
        self._draws += 1
        with np.errstate(over="ignore"):
            keys = mix(self._keys + np.uint64(self._draws) * np.uint64(0xD1B54A32D192ED03))
            steps = np.arange(1, width + 1, dtype=np.uint64) * _GAMMA
            return mix(keys[:, None] + steps[None, :])

    def uniform(self, width: int) -> Array:
        """Draw uniformly from [0, 1), (batch, width) float64."""
        return np.asarray((self.bits(width) >> np.uint64(11)) * 2.0**-53)

    def evenly(self) -> Array:
        """Return a number in [0, 1) for each row, spread evenly over rows of successive numbers.

        These are the fractions of `number / phi`, phi the golden ratio, shifted by the seed:
        uniform over seeds, and any run of n rows has about one in each n-th of the interval (a
        Kronecker sequence; Niederreiter 1992, section 3.1). What was drawn before has no influence.

        Returns:
            (batch,) float64.
        """
        return np.asarray((self._even >> np.uint64(11)) * 2.0**-53)

    def integers(self, high: int, width: int) -> Array:
        """Draw uniformly from 0 .. high-1, (batch, width) int64."""
        return np.asarray((self.uniform(width) * high).astype(np.int64))


def permute(index: Array, n: int, key: int) -> Array:
    """Return the image of each `index` under a random permutation of 0 .. n-1 chosen by `key`.

    A Feistel network over the next power of four with cycle walking: no table, so the order of a
    billion rows costs no memory. `index` and the result are int64 of the same shape.
    """
    index = np.asarray(index, dtype=np.int64)
    if n <= 1:
        return np.zeros_like(index)
    half = np.uint64(max(1, (int(n - 1).bit_length() + 1) // 2))
    low = np.uint64((1 << int(half)) - 1)
    rounds = mix(np.uint64(key & (2**64 - 1)) + np.arange(1, 7, dtype=np.uint64) * _GAMMA)
    out = index.astype(np.uint64)
    is_outside = np.ones(out.shape, dtype=bool)  # of 0 .. n-1: go through the network once more
    while is_outside.any():
        left, right = out[is_outside] >> half, out[is_outside] & low
        for constant in rounds:
            with np.errstate(over="ignore"):
                left, right = right, left ^ (mix(right * _GAMMA + constant) & low)
        out[is_outside] = (left << half) | right
        is_outside &= out >= np.uint64(n)
    return out.astype(np.int64)
