from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from foreword.train.tensor_files import DTYPES, write_one_by_one


def test_a_file_written_tensor_by_tensor_is_a_safetensors_file(tmp_path: Path) -> None:
    shapes: list[tuple[int, ...]] = [(), (3,), (2, 3), (0, 4)]
    tensors = {f"{n}.{dtype}": torch.ones(n).to(dtype) for n in shapes for dtype in DTYPES}
    write_one_by_one(tmp_path / "file", tensors)
    loaded = load_file(tmp_path / "file")
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(loaded[name], tensor), name
