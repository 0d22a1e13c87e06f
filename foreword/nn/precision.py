"""Where bf16 is too coarse: sums, angles and recurrences in float32, or in float64 as given."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return float32 for a narrower dtype, else the dtype itself."""
    return torch.promote_types(dtype, torch.float32)


def upcast(x: Tensor) -> Tensor:
    """Return `x` in `at_least_float32`."""
    return x.to(at_least_float32(x.dtype))


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype that products of `x` run in: autocast's where it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def widest(device: torch.device) -> torch.dtype:
    """Return the dtype for sums of many numbers: float64, or float32 where the device has none."""
    return torch.float32 if device.type == "mps" else torch.float64
