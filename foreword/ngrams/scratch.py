"""Arrays that may be larger than memory: mapped from files, worked on part by part on all cores."""

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

# Those that this process may run on.
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
CHUNK = 1 << 22  # elements that are worked on at once
LEAST = 1 << 16  # elements that are worth a core of their own


@dataclass(frozen=True)
class Scratch:
    """A folder for arrays, and how much of them is in memory at once.

    Attributes:
        folder: emptied by the caller.
        chunk: elements that are worked on at once, by all cores together.
    """

    folder: Path
    chunk: int = CHUNK

    def file(self, name: str) -> Path:
        """A file to make; what is mapped from one of this name stays as it is."""
        file = self.folder / name
        file.unlink(missing_ok=True)
        return file

    def create(self, name: str, size: int, dtype: Any) -> Array:
        """An array of zeros in a file.

        Raises:
            OSError: the disk has no room for it.
        """
        file = self.file(f"{name}.npy")
        made = np.lib.format.open_memmap(file, "w+", dtype, (size,))
        if hasattr(os, "posix_fallocate"):  # else a full disk would kill who writes to the array
            with file.open("r+b") as opened:
                os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
        return made

    def keep(self, name: str, values: Array) -> Array:
        """The same values, in a file.

        Raises:
            OSError: the disk has no room for them.
        """
        kept = self.create(name, len(values), values.dtype)
        kept[:] = values
        return kept

    def step(self, size: int) -> int:
        """How many of so many elements a core works on at once."""
        return min(-(-self.chunk // CORES), max(LEAST, -(-size // CORES)))

    def parts(self, size: int) -> list[slice]:
        """So many elements, `step` at a time."""
        step = self.step(size)
        return [slice(at, min(at + step, size)) for at in range(0, size, step)]

    def each(self, work: Callable[[Part], Result], parts: Iterable[Part]) -> list[Result]:
        """`work` on every part: numpy's sorts and look-ups run beside each other."""
        with ThreadPoolExecutor(CORES) as pool:
            return list(pool.map(work, parts))
