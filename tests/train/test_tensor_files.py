from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from foreword.disk import atomic
from foreword.train import tensor_files
from foreword.train.tensor_files import DTYPES

EVERY = slice(0, 7)


def test_what_is_written_is_a_safetensors_file_whose_entry_is_its_size_and_checksum(
    tmp_path: Path,
) -> None:
    shapes: list[tuple[int, ...]] = [(), (3,), (2, 3), (0, 4)]
    tensors = {f"{n}.{dtype}": torch.ones(n).to(dtype) for n in shapes for dtype in DTYPES}
    tensors["turned"] = torch.arange(6.0).view(2, 3).t()
    file = tmp_path / "weights.safetensors"
    entry = tensor_files.write(file, tensors)
    assert entry == {"bytes": file.stat().st_size, "blake2b": atomic.checksum(file)}
    loaded = load_file(file)
    assert loaded.keys() == tensors.keys()
    with tensor_files.opened(tmp_path, "weights") as opened:
        for name, tensor in tensors.items():
            assert torch.equal(loaded[name], tensor), name
            assert torch.equal(opened[name][...], tensor), name
            assert (opened[name].shape, opened[name].dtype) == (tensor.shape, tensor.dtype)


@pytest.mark.parametrize("rows", [..., EVERY, slice(0, 2), slice(2, 6), slice(5, 7), slice(6, 6)])
def test_any_rows_are_read_from_several_files(rows: tensor_files.Rows, tmp_path: Path) -> None:
    whole = {"a": torch.arange(14.0).view(7, 2), "few": torch.ones(1, 3)}
    parts = {name: torch.tensor_split(tensor, [3, 6]) for name, tensor in whole.items()}
    for n in range(3):
        own = {name: part[n].clone() for name, part in parts.items()}
        own |= {} if n else {"count": torch.tensor(5.0)}  # not sharded: in the first file alone
        save_file(own, tmp_path / tensor_files.name_of("weights", n, 3))
    assert tensor_files.names_in(tmp_path, "weights")[1] == "weights-2-of-3.safetensors"
    with tensor_files.opened(tmp_path, "weights") as opened:
        assert (opened["a"].shape, opened["few"].shape, opened["count"].shape) == (
            (7, 2),
            (1, 3),
            (),
        )
        assert torch.equal(opened["a"][rows], whole["a"][rows])
        assert torch.equal(opened["few"][...], whole["few"])
        assert opened["count"].shape == ()
        assert opened["count"][...] == 5
