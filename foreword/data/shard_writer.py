"""The writing of token shards, in memory that does not grow with them."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedWriter
from pathlib import Path
from types import TracebackType

import numpy as np

from foreword.data.shards import BLOCK, HEADER, MAGIC, TYPES, paths_of
from foreword.disk import atomic
from foreword.types import Array


class ShardWriter:
    """A writer of `prefix.bin` and `prefix.idx`, which take their names when both are whole.

        with ShardWriter("shards/train", vocab_size) as writer:
            writer.add(tokens, sequence_lengths, document_lengths)

    Tokens are written as they come; the lengths of sequences and documents wait in files without a
    name, because the format puts their number first.

    Args:
        prefix: the path without `.bin` and `.idx`.
        vocab_size: number of ids; tokens are uint16 where that is enough, else int32.

    Attributes:
        files: size in bytes and checksum of each file by its name, once it is closed.
    """

    def __init__(self, prefix: str | Path, vocab_size: int) -> None:
        self.prefix = Path(prefix)
        self._code = 8 if vocab_size <= 1 << 16 else 4
        self.dtype = np.dtype(TYPES[self._code]).newbyteorder("<")
        self.files: dict[str, dict[str, int | str]] = {}
        self._paths = paths_of(self.prefix)
        self._parts = [path.with_name(f".{path.name}.part") for path in self._paths]

    def __enter__(self) -> ShardWriter:
        with atomic.user_errors(self.prefix):
            self._bin = _Hashed(self._parts[0].open("wb"))
            self._lengths = _Waiting(self.prefix.parent, "<i4")
            self._documents = _Waiting(self.prefix.parent, "<i8")
        return self

    def add(self, tokens: Array, sequence_lengths: Array, document_lengths: Array) -> None:
        """Add whole documents.

        Args:
            tokens: the tokens of all documents, (tokens,).
            sequence_lengths: tokens in each sequence, (sequences,).
            document_lengths: sequences in each document, (documents,).

        Raises:
            UserError: the disk is full.
        """
        assert sequence_lengths.sum() == len(tokens)
        assert document_lengths.sum() == len(sequence_lengths)
        with atomic.user_errors(self._paths[0]):
            self._bin.write(np.ascontiguousarray(tokens, dtype=self.dtype).data)
            self._lengths.add(sequence_lengths)
            self._documents.add(document_lengths)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                with atomic.user_errors(self.prefix):
                    self._finish()
        finally:
            for file in (self._bin.file, self._lengths.file, self._documents.file):
                with suppress(OSError):  # a full disk again; an error was raised already
                    file.close()
            for part in self._parts:
                part.unlink(missing_ok=True)

    def _finish(self) -> None:
        lengths, documents = self._lengths, self._documents
        with self._parts[1].open("wb") as file:
            idx = _Hashed(file)
            idx.write(HEADER.pack(MAGIC, 1, self._code, len(lengths), len(documents) + 1))
            for block in lengths.blocks():
                idx.write(block.data)
            end = 0
            for block in lengths.blocks():
                ends = end + np.cumsum(block, dtype="<i8")
                starts = np.append(np.array([end], "<i8"), ends[:-1])
                idx.write((starts * self.dtype.itemsize).astype("<i8").data)
                end = int(ends[-1])
            end = 0
            idx.write(np.zeros(1, "<i8").data)
            for block in documents.blocks():
                ends = end + np.cumsum(block, dtype="<i8")
                idx.write(ends.data)
                end = int(ends[-1])
            written = [self._bin.close(), idx.close()]
        for part, path, entry in zip(self._parts, self._paths, written, strict=True):
            part.replace(path)
            self.files[path.name] = entry


class _Waiting:
    """Numbers that wait in a file without a name to be written behind others.

    Args:
        folder: a folder on the disk that will hold them.
        dtype: their type.
    """

    def __init__(self, folder: Path, dtype: str) -> None:
        self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (closed by the writer)
        self._dtype = np.dtype(dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, numbers: Array) -> None:
        self.file.write(np.ascontiguousarray(numbers, dtype=self._dtype).data)
        self._size += len(numbers)

    def blocks(self) -> Iterator[Array]:
        self.file.seek(0)
        while block := self.file.read(BLOCK * self._dtype.itemsize):
            yield np.frombuffer(block, self._dtype)


class _Hashed:
    """A file hashed while it is written."""

    def __init__(self, file: BufferedWriter) -> None:
        self.file = file
        self._hash = hashlib.blake2b(digest_size=16)
        self._size = 0

    def write(self, data: bytes | memoryview) -> None:
        self.file.write(data)
        self._hash.update(data)
        self._size += memoryview(data).nbytes

    def close(self) -> dict[str, int | str]:
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        return {"bytes": self._size, "blake2b": self._hash.hexdigest()}
