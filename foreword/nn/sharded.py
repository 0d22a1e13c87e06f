"""Tensors of which each process holds some rows (torch's `DTensor`)."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

Rows = slice | EllipsisType  # `...` for all, where each process holds the whole


class Values(Protocol):
    """The values of a whole tensor: another tensor, or a place in files that is read by rows."""

    dtype: torch.dtype

    def __getitem__(self, rows: Rows, /) -> Tensor:
        """Return the values of some rows."""


def is_sharded(tensor: Tensor) -> bool:
    """Return whether this process holds a shard of the tensor alone."""
    loaded = sys.modules.get("torch.distributed.tensor")  # the import takes a second
    return loaded is not None and isinstance(tensor, loaded.DTensor)


def gather(tensor: Tensor) -> Tensor:
    """Return a sharded tensor whole, in each process; another as it is.

    All processes must call it, in the same order.
    """
    full: Tensor = tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]
    return full


def local_part(tensor: Tensor) -> Tensor:
    """Return this process's rows of a sharded tensor, or a tensor as it is."""
    part: Tensor = tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]
    return part


@dataclass(frozen=True)
class Share:
    """The equal part of a sharded tensor that a process holds.

    Attributes:
        number: number of the part, from 0.
        count: number of parts.
        is_copy: whether another process, of a lower number, holds the same.
    """

    number: int
    count: int
    is_copy: bool


def local_share(tensor: Any) -> Share:
    """Return which part of a sharded tensor this process holds."""
    mesh, at = tensor.device_mesh, tensor.device_mesh.get_coordinate()
    (axis,) = (n for n, placement in enumerate(tensor.placements) if placement.is_shard())
    return Share(at[axis], mesh.size(axis), any(at[:axis]) or any(at[axis + 1 :]))


def local_rows(tensor: Tensor) -> Rows:
    """Return the rows of a tensor that this process holds."""
    if not is_sharded(tensor):
        return ...
    share, rows = local_share(tensor), len(tensor)
    each = -(-rows // share.count)
    first = min(rows, each * share.number)
    return slice(first, min(rows, first + each))


@torch.no_grad()
def set_values(tensor: Tensor, values: Values) -> None:
    """Give a tensor its values; of a sharded one each process sets, and reads, its rows alone."""
    part = local_part(tensor)
    if part.numel():
        part.copy_(values[local_rows(tensor)])


def distributed_like(values: Values, like: Tensor) -> Tensor:
    """Return a tensor of these values on the device of another, and sharded if that is."""
    placed = torch.empty_like(like, dtype=values.dtype, requires_grad=False)
    set_values(placed, values)
    return placed


def keep_shards(module: nn.Module) -> None:
    """Drop the whole weights that a forward pass without a backward pass gathered."""
    if (loaded := sys.modules.get("torch.distributed.fsdp")) is not None:
        for part in module.modules():
            if isinstance(part, loaded.FSDPModule):
                part.reshard()
