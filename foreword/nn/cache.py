"""Selection of rows from what a backbone keeps between calls: key-value caches, states."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from torch import Tensor

CacheT = TypeVar("CacheT")


def select(cache: CacheT, rows: Tensor | slice) -> CacheT:
    """Return the cache of some rows, in any order, repeated or not.

    Args:
        cache: tensors whose first dimension is the batch; in lists, tuples and frozen records.
        rows: which, (rows,) int64; or a slice of them.
    """
    return cast(CacheT, _select(cache, rows))


def _select(cache: Any, rows: Tensor | slice) -> Any:
    if isinstance(cache, Tensor):
        return cache[rows]
    if isinstance(cache, list | tuple):
        return type(cache)(_select(part, rows) for part in cache)
    if is_dataclass(cache) and not isinstance(cache, type):
        changes = {f.name: _select(getattr(cache, f.name), rows) for f in fields(cache)}
        return replace(cache, **changes)
    return cache
