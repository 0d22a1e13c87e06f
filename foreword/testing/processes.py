"""The processes of a launcher, to do something to one of them."""

from __future__ import annotations

from pathlib import Path


def process_of(rank: int, launcher: int) -> int:
    """Return the process of a rank, a child of its launcher, by its environment; on Linux.

    Raises:
        ProcessLookupError: there is none.
    """
    for children in Path(f"/proc/{launcher}/task").glob("*/children"):
        for child in children.read_text().split():
            if f"\0RANK={rank}\0".encode() in Path(f"/proc/{child}/environ").read_bytes():
                return int(child)
    raise ProcessLookupError(f"no process of rank {rank}")
