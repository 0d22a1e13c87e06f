"""Training on shards that are on object storage."""

from __future__ import annotations

import errno
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import foreword
from foreword.data import remote_tokens
from foreword.data.remote import storage_of
from foreword.data.remote_tokens import RemoteTokens, TokensAt
from foreword.errors import UserError
from tests.train import runs


def copy(folder: Path, url: str) -> None:
    storage, root = storage_of(url)
    for path in folder.rglob("*"):
        if path.is_file():
            storage.put_file(str(path), f"{root}/{path.relative_to(folder)}")


@pytest.mark.full
def test_a_run_on_object_storage_is_the_run_on_its_shards(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(remote_tokens, "BLOCK", 1024)
    text = runs.write_text(tmp_path / "text")
    made = foreword.prepare(text, tmp_path / "shards", kind="word", progress=False)
    copy(made.folder, f"{bucket}/shards")
    recipe = runs.recipe(steps=3)
    here = foreword.pretrain(recipe, made, tmp_path / "here", progress=False)
    there = foreword.pretrain(recipe, f"{bucket}/shards", tmp_path / "there", progress=False)
    assert there.loss == here.loss
    assert runs.last_bytes(there.run) == runs.last_bytes(here.run)
    assert not list((tmp_path / "cache").rglob("train.bin"))
    with pytest.raises(UserError, match="s3://corpus/nothing: there is no such file or folder"):
        foreword.pretrain(recipe, f"{bucket}/nothing", tmp_path / "nothing", progress=False)


@pytest.mark.full
def test_blocks_are_kept_within_the_cache_and_memory_is_flat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_tokens, "BLOCK", 1 << 12)
    all_tokens = np.random.default_rng(1).integers(0, 1 << 16, 1 << 20).astype(np.uint16)
    (tmp_path / "train.bin").write_bytes(all_tokens.tobytes())
    url = f"file://{tmp_path / 'train.bin'}"
    file = TokensAt(url, 2 << 20)
    tokens = RemoteTokens(file, all_tokens.dtype, cache=16 << 12)
    read = np.random.default_rng(2).integers(0, len(all_tokens), (50, 200))
    tracemalloc.start()
    for indices in read:
        assert (np.take(tokens.as_array(), indices) == all_tokens[indices]).all()
    assert tracemalloc.get_traced_memory()[1] < 600_000  # of 2 MB
    tracemalloc.stop()
    assert len(tokens._slots) == 16
    assert tokens._cache.seek(0, 2) <= 16 << 12
    (tmp_path / "train.bin").write_bytes(b"short")
    with pytest.raises(UserError, match=r"cut short|cannot be read"):
        tokens[0:100_000]


def test_the_environment_bounds_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_tokens, "BLOCK", 8)
    expected = np.arange(64, dtype=np.uint16)
    (tmp_path / "train.bin").write_bytes(expected.tobytes())
    file = TokensAt(f"file://{tmp_path / 'train.bin'}", 128)
    monkeypatch.setenv("FOREWORD_CACHE_BYTES", "2.4e1")
    tokens = RemoteTokens(file, expected.dtype)
    assert tokens[:].tolist() == expected.tolist()
    assert tokens._cache.seek(0, 2) == 24
    for wrong in ("10 GB", "0", "-1", "inf", "nan"):
        monkeypatch.setenv("FOREWORD_CACHE_BYTES", wrong)
        with pytest.raises(UserError, match=f"FOREWORD_CACHE_BYTES: must be .* got '{wrong}'"):
            RemoteTokens(file, expected.dtype)


def test_a_full_disk_is_one_line_and_leaves_no_wrong_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_tokens, "BLOCK", 8)
    expected = np.arange(64, dtype=np.uint16)
    (tmp_path / "train.bin").write_bytes(expected.tobytes())
    file = TokensAt(f"file://{tmp_path / 'train.bin'}", 128)
    tokens = RemoteTokens(file, expected.dtype, cache=16)
    assert tokens[0:8].tolist() == expected[0:8].tolist()
    pwrite, room = os.pwrite, [4]

    def part(number: int, data: bytes, start: int) -> int:
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(number, data[: room.pop()], start)

    monkeypatch.setattr(os, "pwrite", part)
    with pytest.raises(
        UserError, match=r"no room for tokens of file.*No space left on device; set"
    ):
        tokens[8:12]
    monkeypatch.setattr(os, "pwrite", pwrite)
    for start in (12, 8, 4, 0):
        assert tokens[start : start + 4].tolist() == expected[start : start + 4].tolist()


def test_a_mirror_is_renewed_without_touching_files_that_are_open(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    for name in ("prepared.json", "train.idx", "train.bin"):
        (shards / name).write_text(f"first {name}")
    folder = remote_tokens.mirror(f"file://{shards}", tmp_path / "mirror")
    with (folder / "train.idx").open() as opened:
        (shards / "train.idx").write_text("second")
        remote_tokens.mirror(f"file://{shards}", folder)
        assert opened.read() == "first train.idx"
    assert (folder / "train.idx").read_text() == "second"
    assert not list(folder.rglob("*.part"))


def test_storage_of_an_unknown_kind_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Protocol not known: nowhere"):
        foreword.pretrain("gpt2_tiny", "nowhere://shards", tmp_path / "run", progress=False)
