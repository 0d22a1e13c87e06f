"""Settings of the C library's allocator: keep freed memory, or return it to the system.

Training allocates the same blocks at every step; returned in between, their pages would cost time
at each. Reading text allocates some large blocks once, which would otherwise stay allocated beside
everything that follows.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # of glibc's malloc.h
KEPT = {MMAP_THRESHOLD: 1 << 30, TRIM_THRESHOLD: (1 << 31) - 1, TOP_PAD: 64 << 20}
RETURNED = {MMAP_THRESHOLD: 1 << 22, TRIM_THRESHOLD: 1 << 24, TOP_PAD: 1 << 20}

_is_kept = False  # in this process


def keep_freed() -> None:
    """Keep freed memory for later allocations, in the whole process from now on."""
    global _is_kept
    _is_kept = True
    _set(KEPT)


@contextmanager
def returning_freed() -> Iterator[None]:
    """Return large blocks to the system in this block, and at its end everything freed.

    Without `keep_freed` the allocator's settings are the caller's own and stay as they are.
    """
    if not _is_kept:
        yield
        return
    _set(RETURNED)
    try:
        yield
    finally:
        return_freed()
        _set(KEPT)


def return_freed() -> None:
    """Return freed memory that the allocator keeps to the system."""
    if (trim := _function("malloc_trim")) is not None:
        trim(0)


def _set(options: dict[int, int]) -> None:
    if (mallopt := _function("mallopt")) is not None:
        for option, value in options.items():
            mallopt(option, value)


def _function(name: str) -> Any:
    """Return a function of glibc's; None where there is none, as in musl."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
