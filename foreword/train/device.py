"""Where and how numbers are computed: device, precision, threads, and how fast it multiplies."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from foreword.errors import UserError, nearest

DEVICES = ("auto", "cpu", "cuda", "mps")
PRECISIONS = ("auto", "bf16", "fp32")


def choose_device(wanted: str) -> torch.device:
    """`auto` is CUDA where there is one, else the CPU.

    Raises:
        UserError: there is no such device, or none here.
    """
    if wanted not in DEVICES:
        raise UserError(f"device: there is no '{wanted}'{nearest(wanted, DEVICES)}")
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    is_there = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not is_there[wanted]:
        raise UserError(f"device: there is no '{wanted}' here; use 'auto' or 'cpu'")
    return torch.device(wanted)


def choose_precision(wanted: str, device: torch.device) -> torch.dtype:
    """`auto` is bf16 where the hardware multiplies it, else fp32.

    Raises:
        UserError: there is no such precision.
    """
    if wanted not in PRECISIONS:
        raise UserError(f"precision: there is no '{wanted}'{nearest(wanted, PRECISIONS)}")
    if wanted != "auto":
        return torch.bfloat16 if wanted == "bf16" else torch.float32
    if device.type == "cuda":
        # Where it is emulated it is slower than fp32.
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if has_bf16 else torch.float32
    has_bf16 = device.type == "cpu" and (
        torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    )
    return torch.bfloat16 if has_bf16 else torch.float32


def autocast(
    device: torch.device, dtype: torch.dtype, *, keeps_casts: bool = True
) -> AbstractContextManager[Any]:
    """The context in which a forward pass runs in `dtype`, weights staying in float32.

    Args:
        device: where it runs.
        dtype: to compute in.
        keeps_casts: a weight that is used twice is cast once. Not for threads beside others: all
            share what is kept, and the first to leave its context drops it.
    """
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype, cache_enabled=keeps_casts)


def matmul_flops_per_second(device: torch.device, dtype: torch.dtype) -> float:
    """The measured rate of a large matrix product: what the machine can do at best."""
    n = 8192 if device.type == "cuda" else 1024
    a = torch.randn(n, n, device=device).to(dtype)
    best, count = float("inf"), 10 if device.type == "cuda" else 1  # waiting costs time of its own
    for _ in range(6):
        wait(device)
        start = time.perf_counter()
        for _ in range(count):
            torch.mm(a, a)
        wait(device)
        best = min(best, (time.perf_counter() - start) / count)
    return 2 * n**3 / best


def wait(device: torch.device) -> None:
    """Waits until the device has done all that was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def describe(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return "mps (Apple's GPU; Foreword has not been tried on it)"
    return f"{device.type}, {torch.get_num_threads()} threads"
