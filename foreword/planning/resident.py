"""The memory of the process or of its GPU, as the system counts it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Self

import torch

from foreword.process import allocator

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
PEAK = "5"  # written to CLEAR, it resets the peak: proc(5)


class Peak:
    """A context that measures the peak of memory within it.

    On a GPU: the caching allocator's reserved memory, the context and other processes. Else: the
    process's resident set, with the pages of mapped files that were read.

    Attributes:
        start: bytes at the beginning; None if the system does not report them.
        peak: bytes at the peak.

    Args:
        device: the device whose memory is measured.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.start: int | None = None
        self.peak = 0

    @property
    def rise(self) -> int:
        """Bytes from the start to the peak."""
        return self.peak - (self.start or 0)

    def __enter__(self) -> Self:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
            self.start = _used(self.device)
            self._outside = self.start - torch.cuda.memory_reserved(self.device)
        else:
            allocator.return_freed()
            self.start = _status("VmRSS") if _reset() else None
        return self

    def __exit__(self, *_: object) -> None:
        if self.device.type == "cuda":
            self.peak = self._outside + torch.cuda.max_memory_reserved(self.device)
        elif self.start is not None:
            self.peak = _status("VmHWM")


def _used(device: torch.device) -> int:
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def _reset() -> bool:
    try:
        CLEAR.write_text(PEAK, encoding="ascii")
    except OSError:
        return False
    return True


def _status(name: str) -> int:
    """Return a line of `/proc/self/status` in bytes."""
    lines = STATUS.read_text(encoding="ascii").splitlines()
    line = next(line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
