"""Tensors in files of the format safetensors: each whole in one file, or in rows over several.

weights.safetensors                 all tensors whole
weights-1-of-4.safetensors ...      of a sharded model, each process's rows: the rows of a
                                    tensor are those of all files that have it, in their order

`torch.distributed.checkpoint` serialises each file in memory first, plans by pickled objects and
gives no checksums. A file here is written from the tensors' own memory, and there is no index.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from foreword.disk import atomic, stored
from foreword.nn.sharded import Rows

SUFFIX = ".safetensors"
_SHARD = re.compile(r"(.+)-(\d+)-of-(\d+)" + re.escape(SUFFIX))

# The names of dtypes in safetensors.
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_TORCH = {name: dtype for dtype, name in DTYPES.items()}


def name_of(group: str, number: int = 0, count: int = 1) -> str:
    """Return the name of one of the files of a group, such as `weights`; numbers are from 0."""
    return f"{group}-{number + 1}-of-{count}{SUFFIX}" if count > 1 else f"{group}{SUFFIX}"


def group_of(name: str) -> str:
    """Return the group that a file belongs to; "" if it holds no tensors."""
    if shard := _SHARD.fullmatch(name):
        return shard[1]
    return name.removesuffix(SUFFIX) if name.endswith(SUFFIX) else ""


def names_in(folder: Path, group: str) -> list[str]:
    """Return the names of all files of a group, missing ones too, in the order of their rows."""
    matches = (_SHARD.fullmatch(path.name) for path in folder.glob(f"{group}-*-of-*{SUFFIX}"))
    count = max((int(match[3]) for match in matches if match and match[1] == group), default=1)
    return [name_of(group, number, count) for number in range(count)]


def checksum(folder: Path, group: str) -> str:
    """Return a hash of all tensors of a group: of one file, that of its bytes."""
    checksums = [atomic.checksum(folder / name) for name in names_in(folder, group)]
    if len(checksums) == 1:
        return checksums[0]
    return hashlib.blake2b(" ".join(checksums).encode()).hexdigest()[:32]


class StoredTensor:
    """A tensor in files, of which any rows can be read without the others.

    Args:
        parts: its places in the files.

    Attributes:
        dtype: the precision of its values.
        shape: its shape in all processes together.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts
        self.dtype = _TORCH[parts[0].get_dtype()]
        first, *rest = (part.get_shape() for part in parts)
        total = sum((shape[0] for shape in rest), first[0]) if first else 0
        self.shape = (total, *first[1:]) if first else ()

    def __getitem__(self, rows: Rows) -> Tensor:
        """Return the values of some rows."""
        if rows is ... or len(self._parts) == 1:
            values = [part[rows] for part in self._parts]
        else:
            values, before = [self._parts[0][0:0]], 0
            for part in self._parts:
                count = part.get_shape()[0]
                first, last = max(0, rows.start - before), min(count, rows.stop - before)
                if first < last:
                    values.append(part[first:last])
                before += count
        return values[-1] if len(values) < 2 else torch.cat(values)


@contextmanager
def opened(folder: Path, group: str) -> Iterator[dict[str, StoredTensor]]:
    """Open the files of a group, and yield their tensors by name."""
    with ExitStack() as stack:
        parts: dict[str, list[Any]] = {}
        for name in names_in(folder, group):
            file = stack.enter_context(safe_open(folder / name, "pt"))
            for tensor in file.keys():  # noqa: SIM118 - not a dict
                parts.setdefault(tensor, []).append(file.get_slice(tensor))
        yield {name: StoredTensor(places) for name, places in parts.items()}


def write(
    file: Path, tensors: Mapping[str, Tensor], before_each: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Write a file and flush it to the disk; return its entry in a manifest.

    Args:
        file: the file.
        tensors: tensors by name; one at a time is copied, if it is not on the CPU or contiguous.
        before_each: called before each tensor; it may raise an error to end the writing.
    """
    header, end = {}, 0
    # Readers require that numbers lie at multiples of their size; equal tensors make equal files.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    for name, tensor in ordered:
        start, end = end, end + tensor.numel() * tensor.element_size()
        shape = list(tensor.shape)
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": shape, "data_offsets": [start, end]}
    text = stored.to_json(header).encode()
    text += b" " * (-len(text) % 8)
    text = len(text).to_bytes(8, "little") + text
    digest = hashlib.blake2b(text, digest_size=16)
    with file.open("wb") as out:
        out.write(text)
        for _, tensor in ordered:
            before_each()
            plain = tensor.detach().contiguous().cpu()
            data = plain.reshape(-1).view(torch.uint8).numpy().data
            digest.update(data)
            out.write(data)
        out.flush()
        os.fsync(out.fileno())
    return {"bytes": len(text) + end, "blake2b": digest.hexdigest()}
