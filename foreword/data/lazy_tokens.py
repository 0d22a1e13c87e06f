"""Tokens that are read when they are indexed, like an array that is somewhere else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from foreword.types import Array


class LazyTokens(ABC):
    """A one-dimensional array of tokens that is not in memory: indexed, sliced or taken from.

    Attributes:
        dtype: type of the tokens.
    """

    dtype: np.dtype[Any]

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of tokens."""

    @abstractmethod
    def _take(self, indices: Array) -> Array:
        """Return the tokens at these indices, each within the array; (indices,)."""

    def take(
        self, indices: Array, axis: None = None, out: None = None, mode: str = "raise"
    ) -> Array:
        """Return the tokens at some indices, in their shape, as `np.take` does with an array."""
        del axis, out
        indices = np.asarray(indices, dtype=np.int64)
        if mode == "clip":
            indices = np.clip(indices, 0, len(self) - 1)
        elif indices.size and not (indices.min() >= 0 and indices.max() < len(self)):
            raise IndexError(f"tokens {indices.min()} to {indices.max()} of {len(self)}")
        return self._take(indices.ravel()).reshape(indices.shape)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self.take(np.arange(*key.indices(len(self))))
        if isinstance(key, int | np.integer):
            return self.take(np.array([key]))[0]
        return self.take(key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        del copy  # it always is one
        return np.asarray(self[:], dtype)

    def as_array(self) -> Array:
        """Return the same object, typed as the array that it stands for."""
        return cast(Array, self)


class ChainedTokens(LazyTokens):
    """The tokens of several arrays, one after the other, without a copy.

    Args:
        parts: the arrays, at least one.
    """

    def __init__(self, parts: Sequence[Array]) -> None:
        self._parts = [part for part in parts if len(part)] or list(parts[:1])
        self._begins = np.cumsum([0, *(len(part) for part in self._parts)])
        self.dtype = np.result_type(*(part.dtype for part in parts))

    def __len__(self) -> int:
        return int(self._begins[-1])

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice) and key.step in (None, 1):
            start, stop, _ = key.indices(len(self))
            ends = zip(self._parts, self._begins, strict=False)  # not the indices of each token
            parts = [part[max(0, start - at) : max(0, stop - at)] for part, at in ends]
            return np.concatenate(parts, dtype=self.dtype)
        return super().__getitem__(key)

    def _take(self, indices: Array) -> Array:
        which = np.searchsorted(self._begins, indices, side="right") - 1
        tokens = np.empty(len(indices), self.dtype)
        for n in np.unique(which):
            is_in = which == n
            # Not `np.take`, which copies a whole array that is not aligned, as in an index.
            tokens[is_in] = self._parts[n][indices[is_in] - self._begins[n]]
        return tokens
