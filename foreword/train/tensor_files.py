"""Files of tensors, in the format safetensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from foreword import stored
from foreword.nn.sharded import Rows, whole

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
_TORCH = {name: dtype for dtype, name in DTYPES.items()}


class StoredTensor:
    """A tensor in a file, of which any rows can be read without the others.

    Args:
        part: its place in the file.

    Attributes:
        dtype: of its values.
        shape: of the whole.
    """

    def __init__(self, part: Any) -> None:
        self._part = part
        self.dtype, self.shape = _TORCH[part.get_dtype()], tuple(part.get_shape())

    def __getitem__(self, rows: Rows) -> Tensor:
        """Return the values of some rows."""
        values: Tensor = self._part[rows]
        return values


@contextmanager
def opened(file: Path) -> Iterator[dict[str, StoredTensor]]:
    """Open a file, and yield its tensors by name."""
    with safe_open(file, "pt") as loaded:
        yield {name: StoredTensor(loaded.get_slice(name)) for name in loaded.keys()}  # noqa: SIM118 - it is no dict


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
