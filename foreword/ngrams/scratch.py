"""Arrays that may exceed memory: memory-mapped files, processed part by part on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from foreword.types import Array

Part = TypeVar("Part")
Result = TypeVar("Result")

# The cores that this process may run on.
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
CHUNK = 1 << 22  # elements processed at once
LEAST = 1 << 16  # the fewest elements worth a core of their own


@dataclass(frozen=True)
class Scratch:
    """A folder for memory-mapped arrays, and how much of them is in memory at once.

    Attributes:
        folder: the folder; its owner deletes it.
        chunk: elements that all cores together process at once.
    """

    folder: Path
    chunk: int = CHUNK

    def file(self, name: str) -> Path:
        """Return the path of a new file; an old one is unlinked, and its mappings stay valid."""
        file = self.folder / name
        file.unlink(missing_ok=True)
        return file

    def create(self, name: str, size: int, dtype: Any) -> Array:
        """Return an array of zeros in a new file, (size,).

        Raises:
            OSError: the disk has no room for it.
        """
        file = self.file(f"{name}.npy")
        array = np.lib.format.open_memmap(file, "w+", dtype, (size,))
        if hasattr(os, "posix_fallocate"):  # else writing to the array on a full disk raises SIGBUS
            with file.open("r+b") as opened:
                os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
        return array

    def store(self, name: str, values: Array) -> Array:
        """Return a copy of `values` in a new file.

        Raises:
            OSError: the disk has no room for them.
        """
        stored = self.create(name, len(values), values.dtype)
        stored[:] = values
        return stored

    def part_size(self, size: int) -> int:
        """Return how many of `size` elements a core processes at once."""
        return min(-(-self.chunk // CORES), max(LEAST, -(-size // CORES)))

    def parts(self, size: int) -> list[slice]:
        """Return the parts of `size` elements, each of `part_size` elements or fewer."""
        step = self.part_size(size)
        return [slice(at, min(at + step, size)) for at in range(0, size, step)]

    def map(self, work: Callable[[Part], Result], parts: Iterable[Part]) -> list[Result]:
        """Return `work` of every part, on all cores: numpy's sorts and look-ups run in parallel."""
        with ThreadPoolExecutor(CORES) as pool:
            return list(pool.map(work, parts))
