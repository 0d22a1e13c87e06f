from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from foreword.data import shards as module
from foreword.data.shard_writer import ShardWriter
from foreword.data.shards import Shards
from foreword.errors import UserError


def write(prefix: Path, vocab: int = 1000) -> ShardWriter:
    """Two documents, of two sentences and one: [1 2 3 | 4] [5 6]."""
    with ShardWriter(prefix, vocab) as writer:
        writer.add(np.array([1, 2, 3, 4]), np.array([3, 1]), np.array([2]))
        writer.add(np.array([5, 6]), np.array([2]), np.array([1]))
    return writer


@pytest.mark.parametrize(("vocab", "code", "letter"), [(1 << 16, 8, "H"), ((1 << 16) + 1, 4, "i")])
def test_shards_have_the_documented_bytes(
    tmp_path: Path, vocab: int, code: int, letter: str
) -> None:
    """The layout as Megatron-LM's `indexed_dataset.py` packs it, field by field."""
    write(tmp_path / "a", vocab)
    size = struct.calcsize(letter)
    assert (tmp_path / "a.bin").read_bytes() == struct.pack(f"<6{letter}", 1, 2, 3, 4, 5, 6)
    assert (tmp_path / "a.idx").read_bytes() == b"".join(
        [
            b"MMIDIDX\x00\x00",
            struct.pack("<Q", 1),
            struct.pack("<B", code),
            struct.pack("<Q", 3),  # sequences
            struct.pack("<Q", 3),  # entries of the document index
            struct.pack("<3i", 3, 1, 2),
            struct.pack("<3q", 0, 3 * size, 4 * size),
            struct.pack("<3q", 0, 2, 3),
        ]
    )


def test_written_shards_read_back_equal(tmp_path: Path) -> None:
    writer = write(tmp_path / "a")
    shards = Shards.open(tmp_path / "a")
    assert len(shards) == 2
    assert shards.tokens_total == 6
    assert shards.tokens.tolist() == [1, 2, 3, 4, 5, 6]
    assert shards.sequence_lengths.tolist() == [3, 1, 2]
    assert shards.sequence_starts.tolist() == [0, 3, 4, 6]
    assert shards.document_starts.tolist() == [0, 4, 6]
    assert shards.counts(8).tolist() == [0, 1, 1, 1, 1, 1, 1, 0]
    assert writer.files["a.bin"]["bytes"] == 12
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.bin", "a.idx"]


def test_shards_without_documents_read_back(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "a", 10):
        pass
    shards = Shards.open(tmp_path / "a")
    assert (len(shards), shards.tokens_total) == (0, 0)
    assert shards.document_starts.tolist() == [0]


def test_indices_longer_than_a_block_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("shards", "shard_writer"):
        monkeypatch.setattr(f"foreword.data.{name}.BLOCK", 7)
    lengths = np.arange(100) % 5
    with ShardWriter(tmp_path / "a", 1 << 20) as writer:
        writer.add(np.arange(lengths.sum()), lengths, np.full(50, 2))
    shards = Shards.open(tmp_path / "a")
    assert shards.sequence_lengths.tolist() == lengths.tolist()
    assert shards.document_starts.tolist() == [0, *lengths.reshape(50, 2).sum(1).cumsum()]
    assert shards.tokens.tolist() == list(range(lengths.sum()))


@pytest.mark.parametrize("name", ["a.bin", "a.idx"])
@pytest.mark.parametrize("change", [-1, -3, 1, None])
def test_shards_of_another_size_are_refused(tmp_path: Path, name: str, change: int | None) -> None:
    write(tmp_path / "a")
    path = tmp_path / name
    data = path.read_bytes()
    if change is None:
        path.unlink()
    else:
        path.write_bytes(data[:change] if change < 0 else data + b"x" * change)
    with pytest.raises(UserError) as caught:
        Shards.open(tmp_path / "a")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.bin", "a.idx"])
def test_a_file_that_is_cut_short_while_it_is_read_is_named(tmp_path: Path, name: str) -> None:
    """The system would kill a process that reads on."""
    write(tmp_path / "a")
    shards = Shards.open(tmp_path / "a")
    path = tmp_path / name
    data = path.read_bytes()
    path.rename(tmp_path / "old")
    path.write_bytes(data[:-1])  # another file by its name does no harm
    assert shards.tokens.tolist() == [1, 2, 3, 4, 5, 6]
    os.truncate(tmp_path / "old", len(data) - 1)
    message = (
        f"{path}: cut short while it was read: {len(data) - 1} bytes where there were {len(data)}"
    )
    for read in (lambda: shards.tokens, lambda: shards.counts(8), shards.require_complete):
        with pytest.raises(UserError, match=message):
            read()


@pytest.mark.parametrize("place", [0, 9, 17, 34, 34 + 12 + 8, 34 + 12 + 24])
def test_an_inconsistent_index_is_refused(tmp_path: Path, place: int) -> None:
    write(tmp_path / "a")
    path = tmp_path / "a.idx"
    data = bytearray(path.read_bytes())
    data[place] ^= 0x47
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"a\.idx"):
        Shards.open(tmp_path / "a")


def test_an_error_leaves_earlier_shards_unchanged(tmp_path: Path) -> None:
    write(tmp_path / "a")
    before = (tmp_path / "a.bin").read_bytes()
    with pytest.raises(RuntimeError), ShardWriter(tmp_path / "a", 1000) as writer:
        writer.add(np.array([9]), np.array([1]), np.array([1]))
        raise RuntimeError
    assert (tmp_path / "a.bin").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.bin", "a.idx"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
@pytest.mark.parametrize("part", ["bin", "idx"])
@pytest.mark.parametrize("count", [2, 1 << 16])
def test_a_full_disk_is_reported_in_one_line(tmp_path: Path, part: str, count: int) -> None:
    (tmp_path / f".a.{part}.part").symlink_to("/dev/full")
    with (
        pytest.raises(UserError, match=r"/a(\.bin)?: cannot be written: No space left on device"),
        ShardWriter(tmp_path / "a", 1000) as writer,
    ):
        writer.add(np.ones(count), np.ones(count, np.int64), np.ones(count, np.int64))
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"), ShardWriter(tmp_path / "no" / "a", 9):
        pass


def test_a_text_of_one_repeated_token_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", 4)
    for name, tokens in (("one", [7] * 12), ("last", [7] * 11 + [8]), ("block", [7] * 4 + [8] * 4)):
        with ShardWriter(tmp_path / name, 1000) as writer:
            writer.add(np.array(tokens), np.array([len(tokens)]), np.array([1]))
    Shards.open(tmp_path / "last").require_variety()
    Shards.open(tmp_path / "block").require_variety()
    with pytest.raises(UserError, match="one: the text contains fewer than two distinct tokens"):
        Shards.open(tmp_path / "one").require_variety()


def test_memory_does_not_grow_with_the_number_of_sequences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("shards", "shard_writer"):
        monkeypatch.setattr(f"foreword.data.{name}.BLOCK", 1000)
    lengths, sequences = np.ones(500, np.int32), np.array([500])
    tracemalloc.start()
    with ShardWriter(tmp_path / "a", 1000) as writer:
        for _ in range(400):
            writer.add(np.ones(500, np.int32), lengths, sequences)
    opened = Shards.open(tmp_path / "a")
    both = Shards.chain(tmp_path / "both", [opened, opened])
    assert both.document_starts.tolist() == list(range(0, 400_001, 500))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000  # half a byte for each sequence of both would be as much


def test_opened_shards_hold_nothing_for_each_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", 1000)
    documents = 20_000
    with ShardWriter(tmp_path / "a", 1000) as writer:
        ones = np.ones(documents, np.int32)
        writer.add(ones, ones, ones)
    tracemalloc.start()
    shards = Shards.open(tmp_path / "a")
    shards.document_starts  # noqa: B018 - made, and not kept
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(shards) == documents and held < documents
