"""What a backbone remembers between calls, row by row: caches of keys and values, states."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from torch import Tensor

Remembered = TypeVar("Remembered")


def take(memory: Remembered, rows: Tensor | slice) -> Remembered:
    """The memory of some rows, in any order and any number of times.

    Args:
        memory: tensors whose first dimension is the batch; in lists, tuples and frozen records.
        rows: which, (rows,) int64; or a slice of them.
    """
    return cast(Remembered, _take(memory, rows))


def _take(memory: Any, rows: Tensor | slice) -> Any:
    if isinstance(memory, Tensor):
        return memory[rows]
    if isinstance(memory, list | tuple):
        return type(memory)(_take(part, rows) for part in memory)
    if is_dataclass(memory) and not isinstance(memory, type):
        changes = {f.name: _take(getattr(memory, f.name), rows) for f in fields(memory)}
        return replace(memory, **changes)
    return memory
