"""Tensors of which each process holds a shard (torch's `DTensor`), and files of whole ones."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from foreword import stored

# The names of dtypes in safetensors.
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def is_sharded(tensor: Tensor) -> bool:
    """Return whether this process holds a shard of the tensor alone."""
    loaded = sys.modules.get("torch.distributed.tensor")  # the import takes a second
    return loaded is not None and isinstance(tensor, loaded.DTensor)


def whole(tensor: Tensor) -> Tensor:
    """Return a sharded tensor whole, in each process; another as it is.

    All processes must call it, in the same order.
    """
    full: Tensor = tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]
    return full


def placed_like(value: Tensor, like: Tensor) -> Tensor:
    """Return a whole tensor on the device of another; if that is sharded, this process's shard."""
    value = value.to(like.device)
    if not is_sharded(like):
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)


def keep_shards(module: nn.Module) -> None:
    """Drop the whole weights that a forward pass without a backward pass gathered."""
    if (loaded := sys.modules.get("torch.distributed.fsdp")) is not None:
        for part in module.modules():
            if isinstance(part, loaded.FSDPModule):
                part.reshard()


def write_one_by_one(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write sharded tensors as a safetensors file; no more than one is held whole.

    All processes must call `whole` for these, in the same order.
    """
    header, end = {}, 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        shape = list(tensor.shape)
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": shape, "data_offsets": [start, end]}
    text = stored.to_json(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            plain = whole(tensor.detach()).contiguous().cpu()
            out.write(plain.reshape(-1).view(torch.uint8).numpy().data)
