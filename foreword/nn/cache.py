"""State of a backbone between calls: key-value caches that grow, and the selection of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from foreword.types import Array

Cache = tuple[Tensor, Tensor]  # keys and values, each (batch, heads, length, d_head)
AttentionCache = tuple[Cache, Cache | None]  # of self-attention and of cross-attention
SPARE = 64  # positions for which room is made at a time

CacheT = TypeVar("CacheT")


@dataclass(frozen=True)
class LayerState:
    """What a recurrent layer knows of all that it has read; its size does not grow.

    Attributes:
        parts: tensors whose first dimension is the batch.
    """

    parts: tuple[Tensor, ...]


LayerCache = AttentionCache | LayerState


def cached_length(cache: Sequence[LayerCache]) -> int:
    """Return the number of positions that have keys; 0 if no layer has any."""
    return next((layer[0][0].shape[2] for layer in cache if isinstance(layer, tuple)), 0)


def select(cache: CacheT, rows: Tensor | slice) -> CacheT:
    """Return the cache of some rows, in any order, repeated or not.

    Args:
        cache: tensors whose first dimension is the batch; in lists, tuples and frozen records.
        rows: which, (rows,) int64; or a slice of them.
    """
    return cast(CacheT, _select(cache, rows))


def token_layer(ids: Tensor) -> AttentionCache:
    """Return tokens, (batch, length), as a layer of a cache: the next call knows the last ones."""
    tokens = ids[:, None, :, None]
    return (tokens, tokens), None


def _select(cache: Any, rows: Tensor | slice) -> Any:
    if isinstance(cache, Tensor):
        return cache[rows]
    if isinstance(cache, list | tuple):
        return type(cache)(_select(part, rows) for part in cache)
    if is_dataclass(cache) and not isinstance(cache, type):
        changes = {f.name: _select(getattr(cache, f.name), rows) for f in fields(cache)}
        return replace(cache, **changes)
    return cache


class GrowingCache:
    """The key-value cache of a stack whose rows grow by different numbers of tokens.

    There is room for tokens to come, so appending copies new keys and values alone. Each call of
    the stack appends tokens to every row; `accept` then says how many of them each row keeps.

    Args:
        parts: the caches of groups of rows that a stack returned, each of rows of one length.

    Attributes:
        lengths: the number of tokens of each row, (rows,) int64.
    """

    def __init__(self, parts: Sequence[list[LayerCache]]) -> None:
        keys = [next(layer[0][0] for layer in part if isinstance(layer, tuple)) for part in parts]
        self.lengths: Array = np.concatenate([np.full(len(k), k.shape[2], np.int64) for k in keys])
        longest = int(self.lengths.max())
        self._layers = [_growing(layers, longest) for layers in zip(*parts, strict=True)]

    def __getitem__(self, layer: int) -> GrowingLayer | StateLayer:
        return self._layers[layer]

    @property
    def can_take_back(self) -> bool:
        """Whether `accept` may keep fewer tokens than were read: a state has read them all."""
        return not any(isinstance(layer, StateLayer) for layer in self._layers)

    @property
    def is_even(self) -> bool:
        """Whether all rows have one length."""
        return bool((self.lengths == self.lengths[0]).all())

    @property
    def source_length(self) -> int:
        """The length of the source, 0 without one."""
        first = self._layers[0]
        source = first.source if isinstance(first, GrowingLayer) else None
        return 0 if source is None else source[0].shape[2]

    def last_tokens(self) -> Tensor:
        """Return the last token of each row, (rows,), where the last layer is of `token_layer`."""
        tokens = cast(GrowingLayer, self._layers[-1]).keys[:, 0, :, 0]
        return tokens.gather(1, torch.from_numpy(self.lengths[:, None] - 1).to(tokens.device))[:, 0]

    def begin(self, count: int, device: torch.device) -> tuple[Tensor, int]:
        """Prepare for `count` more tokens of each row, and return where they and all keys are.

        Returns:
            The positions of the new tokens, (count,) if all rows have one length, else (rows,
            count); and the number of keys.
        """
        longest = int(self.lengths.max())
        if self.is_even:
            positions = torch.arange(longest, longest + count, device=device)
        else:
            positions = torch.from_numpy(self.lengths[:, None] + np.arange(count)).to(device)
        for layer in self._layers:
            if isinstance(layer, GrowingLayer):
                layer.begin(positions, longest + count)
        return positions, longest + count

    def accept(self, counts: Array) -> None:
        """Keep the first of the tokens that were appended last, (rows,) int64."""
        self.lengths = self.lengths + counts

    def join(self, other: GrowingCache) -> None:
        """Add the rows of another cache after these."""
        self.lengths = np.concatenate([self.lengths, other.lengths])
        for layer, new in zip(self._layers, other._layers, strict=True):
            layer.join(cast(Any, new), int(self.lengths.max()))

    def keep(self, rows: Array) -> None:
        """Keep these rows alone."""
        self.lengths = self.lengths[rows]
        for layer in self._layers:
            layer.keep(torch.from_numpy(rows))


class GrowingLayer:
    """The keys and values of one layer of a `GrowingCache`."""

    def __init__(self, parts: Sequence[AttentionCache], longest: int) -> None:
        self._both = [
            _joined(tensors, longest) for tensors in zip(*(p[0] for p in parts), strict=True)
        ]
        sources = [source for _, source in parts if source is not None]
        self.source = None
        if sources:
            keys, values = (torch.cat(some) for some in zip(*sources, strict=True))
            self.source = keys, values
        self._positions, self._end = torch.empty(0), 0

    @property
    def keys(self) -> Tensor:
        """The keys, with room for more, (rows, heads, positions, d_head)."""
        return self._both[0]

    def begin(self, positions: Tensor, end: int) -> None:
        """Make room for tokens at these positions, before `end`."""
        self._positions, self._end = positions, end
        keys = self._both[0]
        if keys.shape[2] < end:
            for n, old in enumerate(self._both):
                self._both[n] = _room(old, len(old), end)
                self._both[n][:, :, : old.shape[2]] = old

    def append(self, k: Tensor, v: Tensor) -> Cache:
        """Write new keys and values, (rows, heads, new, d_head), and return all."""
        for room, new in zip(self._both, (k, v), strict=True):
            if self._positions.ndim == 1:
                room[:, :, self._end - new.shape[2] : self._end] = new
            else:
                rows = torch.arange(len(new), device=new.device)[:, None]
                room[rows, :, self._positions] = new.transpose(1, 2)
        keys, values = (room[:, :, : self._end] for room in self._both)
        return keys, values

    def join(self, other: GrowingLayer, longest: int) -> None:
        """Add the rows of another layer, in a room for rows of `longest` tokens."""
        both = zip(self._both, other._both, strict=True)
        self._both = [_joined((old, new), longest) for old, new in both]
        if self.source is not None and other.source is not None:
            keys, values = (torch.cat(some) for some in zip(self.source, other.source, strict=True))
            self.source = keys, values

    def keep(self, rows: Tensor) -> None:
        """Keep these rows alone."""
        self._both = [room[rows.to(room.device)] for room in self._both]
        if self.source is not None:
            self.source = select(self.source, rows.to(self.source[0].device))


class StateLayer:
    """The state of one recurrent layer of a `GrowingCache`, which each call replaces."""

    def __init__(self, parts: Sequence[LayerState]) -> None:
        columns = zip(*(part.parts for part in parts), strict=True)
        self.state = LayerState(tuple(map(torch.cat, columns)))

    def join(self, other: StateLayer, longest: int) -> None:
        """Add the rows of another layer."""
        self.state = StateLayer([self.state, other.state]).state

    def keep(self, rows: Tensor) -> None:
        """Keep these rows alone."""
        self.state = select(self.state, rows.to(self.state.parts[0].device))


def _growing(parts: Sequence[LayerCache], longest: int) -> GrowingLayer | StateLayer:
    """Return one layer of several caches as a layer that grows, or as a state."""
    states = [part for part in parts if isinstance(part, LayerState)]
    if states:
        return StateLayer(states)
    return GrowingLayer(cast(Sequence[AttentionCache], parts), longest)


def _joined(parts: Sequence[Tensor], longest: int) -> Tensor:
    """Return the rows of all parts in one room, each cut to what a row of `longest` may have."""
    room, first = _room(parts[0], sum(map(len, parts)), longest), 0
    for part in parts:
        length = min(part.shape[2], room.shape[2])
        room[first : first + len(part), :, :length] = part[:, :, :length]
        first += len(part)
    return room


def _room(like: Tensor, rows: int, length: int) -> Tensor:
    """Return zeros for a number of rows, longer than `length`; NaN would spread through masks."""
    length = (length // SPARE + 1) * SPARE
    return like.new_zeros(rows, like.shape[1], length, like.shape[3])
