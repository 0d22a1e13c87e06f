"""Device, precision, and the measured speed of matrix products."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from foreword.errors import UserError, nearest

DEVICES = ("auto", "cpu", "cuda", "mps")
PRECISIONS = ("auto", "bf16", "fp32")


def choose_device(name: str, setting: str = "--device") -> torch.device:
    """Return the device of this name; `auto` is CUDA if there is one, else the CPU.

    Args:
        name: the name.
        setting: the option or setting it comes from, for messages.

    Raises:
        UserError: there is no such device, or none here.
    """
    if name not in DEVICES:
        kind = name.partition(":")[0]
        hint = f"; there is: {', '.join(DEVICES)}"
        if kind != name and kind in DEVICES:
            hint = f"; use '{kind}', of which CUDA_VISIBLE_DEVICES can choose one"
        raise UserError(f"{setting}: there is no '{name}'{hint}")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    is_available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not is_available[name]:
        raise UserError(f"{setting}: there is no '{name}' on this machine; use 'auto' or 'cpu'")
    return torch.device(name)


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype of this name; `auto` is bf16 if the hardware multiplies it, else fp32.

    Raises:
        UserError: there is no such precision.
    """
    if name not in PRECISIONS:
        raise UserError(f"precision: there is no '{name}'{nearest(name, PRECISIONS)}")
    if name != "auto":
        return torch.bfloat16 if name == "bf16" else torch.float32
    return torch.bfloat16 if multiplies_bf16(device) else torch.float32


def multiplies_bf16(device: torch.device) -> bool:
    """Return whether the hardware multiplies bf16; where it is emulated it is slower than fp32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and (
        torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    )


def precision_warning(device: torch.device, dtype: torch.dtype) -> str | None:
    """Return a warning that the hardware emulates the precision; None if it does not."""
    if dtype != torch.bfloat16 or multiplies_bf16(device):
        return None
    return (
        f"bf16 on {device.type}: there are no instructions for it here, so it is emulated, many "
        "times slower than fp32"
    )


def autocast(
    device: torch.device, dtype: torch.dtype, *, keeps_casts: bool = True
) -> AbstractContextManager[Any]:
    """Return the context in which a forward pass runs in `dtype`; weights stay in float32.

    Args:
        device: where it runs.
        dtype: the precision to compute in.
        keeps_casts: cast a weight that is used twice only once. Not for parallel threads: they
            share the cache, and the first to leave its context empties it.
    """
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype, cache_enabled=keeps_casts)


def matmul_flops_per_second(device: torch.device, dtype: torch.dtype) -> float:
    """Measure the speed of a large matrix product, the best rate of the machine."""
    n = 8192 if device.type == "cuda" else 1024
    a = torch.randn(n, n, device=device).to(dtype)
    best, count = float("inf"), 10 if device.type == "cuda" else 1  # synchronising takes time too
    for _ in range(6):
        wait(device)
        start = time.perf_counter()
        for _ in range(count):
            torch.mm(a, a)
        wait(device)
        best = min(best, (time.perf_counter() - start) / count)
    return 2 * n**3 / best


def wait(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def describe(device: torch.device) -> str:
    """Return the device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return "mps (Apple's GPU; Foreword has not been tried on it)"
    threads = torch.get_num_threads()
    return f"{device.type}, {threads} thread{'s' * (threads != 1)}"
