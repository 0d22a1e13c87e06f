"""Token shards: a `.bin` of tokens and an `.idx` of where sentences and documents begin.

The format is the indexed dataset of Megatron-LM, NeMo Curator and datatrove, so corpora can be
exchanged both ways. All numbers are little-endian:

    .bin   the tokens of all sequences, one after the other
    .idx   9 bytes      "MMIDIDX", two zero bytes
           uint64       version, 1
           uint8        type of the tokens: 4 is int32, 8 is uint16
           uint64       number of sequences
           uint64       number of entries in the document index: documents + 1
           int32 each   length of each sequence, in tokens
           int64 each   offset of each sequence in the .bin, in bytes
           int64 each   document index: the first sequence of each document, and the end

Here a sequence is a sentence; in corpora made elsewhere it is often a whole document.
"""

from __future__ import annotations

import hashlib
import itertools
import mmap
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from io import BufferedWriter
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from foreword import atomic
from foreword.data.lazy_tokens import ChainedTokens
from foreword.data.remote_tokens import SUFFIX, RemoteTokens, TokensAt
from foreword.errors import UserError
from foreword.types import Array

MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
_TYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}
_BLOCK = 1 << 20  # tokens, or entries of the index, at once
_CUT = "{}: cut short, or not a token index; prepare the text again"


@dataclass(frozen=True)
class Shards:
    """Tokens on disk, mapped into memory: only the accessed part is read.

    Attributes:
        prefix: the path without `.bin` and `.idx`.
        all_tokens: what `tokens` returns.
        sequence_lengths: tokens in each sequence, (sequences,) int32.
        document_index: the first sequence of each document, and the end; (documents + 1,) int64.
        mapped: the mapped files, each with its size in bytes.
    """

    prefix: Path
    all_tokens: Array
    sequence_lengths: Array
    document_index: Array
    mapped: tuple[_Mapped, ...] = ()

    @classmethod
    def open(cls, prefix: str | Path) -> Shards:
        """Open `prefix.bin` and `prefix.idx`, and check one against the other.

        Raises:
            UserError: one is missing, cut short, or not of this format; the message names it.
        """
        prefix = Path(prefix)
        bin_path, idx_path = _paths(prefix)
        remote_path = bin_path.with_suffix(SUFFIX)
        is_remote = not bin_path.exists() and remote_path.is_file()
        for path in (remote_path if is_remote else bin_path, idx_path):
            if not path.is_file():
                raise UserError(f"{path}: there is no such file; 'foreword prepare' makes it")
        if idx_path.stat().st_size < _HEADER.size:
            raise UserError(_CUT.format(idx_path))
        index = _Mapped.of(idx_path)
        dtype, lengths, pointers, documents = _read_index(index)
        starts = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=starts[1:])
        is_whole = (
            (lengths >= 0).all()
            and np.array_equal(pointers, starts[:-1] * dtype.itemsize)
            and documents[0] == 0
            and documents[-1] == len(lengths)
            and (np.diff(documents) >= 0).all()
        )
        if not is_whole:
            raise UserError(f"{idx_path}: the index contradicts itself; prepare the text again")
        remote = TokensAt.read(remote_path) if is_remote else None
        size = bin_path.stat().st_size if remote is None else remote.bytes
        expected = int(starts[-1]) * dtype.itemsize
        if size != expected:
            raise UserError(
                f"{bin_path}: {'cut short' if size < expected else 'too long'}: {size:,} bytes "
                f"where its index says {expected:,}; prepare the text again"
            )
        if remote is not None and size:
            elsewhere = RemoteTokens(remote, dtype).as_array()
            return cls(prefix, elsewhere, lengths, documents, (index,))
        if not size:  # which cannot be mapped
            return cls(prefix, np.empty(0, dtype), lengths, documents, (index,))
        tokens = _Mapped.of(bin_path)
        return cls(prefix, tokens.read(dtype), lengths, documents, (index, tokens))

    @classmethod
    def chain(cls, prefix: str | Path, several: Sequence[Shards]) -> Shards:
        """Return the documents of several shards, one after the other; tokens are not copied.

        Args:
            prefix: names them in messages.
            several: the shards, at least one.
        """
        sequences = np.cumsum([0, *(len(one.sequence_lengths) for one in several)])
        indices = [one.document_index[:-1] + n for one, n in zip(several, sequences, strict=False)]
        return cls(
            Path(prefix),
            ChainedTokens([one.all_tokens for one in several]).as_array(),
            np.concatenate([one.sequence_lengths for one in several]),
            np.concatenate([*indices, sequences[-1:]]),
            tuple(file for one in several for file in one.mapped),
        )

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.document_index) - 1

    @property
    def tokens(self) -> Array:
        """All tokens, (tokens,), of the type they have on disk.

        Raises:
            UserError: a file has been cut short since it was opened.
        """
        self.require_whole()
        return self.all_tokens

    def require_whole(self) -> None:
        """Check that no file has been cut short since it was opened.

        The system kills a process that reads a mapped file beyond its end. So this comes before
        every batch, and takes microseconds; a file cut while a batch is read still kills.

        Raises:
            UserError: one has been.
        """
        for file in self.mapped:
            file.require_whole()

    @property
    def tokens_total(self) -> int:
        """Number of tokens."""
        return len(self.all_tokens)

    def counts(self, vocab: int) -> Array:
        """Return the frequency of each token, (vocab,) int64."""
        counts = np.zeros(vocab, dtype=np.int64)
        for at in range(0, self.tokens_total, _BLOCK):
            counts += np.bincount(self.tokens[at : at + _BLOCK], minlength=vocab)[:vocab]
        return counts

    def require_variety(self) -> None:
        """Check that there are two different tokens; reads only the beginning of most texts.

        Raises:
            UserError: all tokens are the same.
        """
        for at in range(0, self.tokens_total, _BLOCK):
            if (self.tokens[at : at + _BLOCK] != self.tokens[0]).any():
                return
        raise UserError(
            f"{self.prefix}: the text contains fewer than two distinct tokens; give more text, or "
            "a tokenizer that knows more words"
        )

    @cached_property
    def sequence_starts(self) -> Array:
        """The first token of each sequence, and the end; (sequences + 1,) int64."""
        starts = np.zeros(len(self.sequence_lengths) + 1, dtype=np.int64)
        np.cumsum(self.sequence_lengths, out=starts[1:])
        return starts

    @cached_property
    def document_starts(self) -> Array:
        """The first token of each document, and the end; (documents + 1,) int64."""
        return self.sequence_starts[self.document_index]


def _paths(prefix: Path) -> tuple[Path, Path]:
    return prefix.with_name(f"{prefix.name}.bin"), prefix.with_name(f"{prefix.name}.idx")


@dataclass(frozen=True)
class _Mapped:
    """A file that is mapped into memory.

    Attributes:
        path: its path.
        memory: its bytes.
    """

    path: Path
    memory: mmap.mmap

    @classmethod
    def of(cls, path: Path) -> _Mapped:
        """Map a file that is not empty."""
        with path.open("rb") as file:
            return cls(path, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def read(self, dtype: np.dtype[Any]) -> Array:
        """Return the whole file as numbers."""
        return np.frombuffer(self.memory, dtype)

    def require_whole(self) -> None:
        """Check that the file is as long as it was.

        A file that took its name since is of no interest: the mapped one stays.

        Raises:
            UserError: it is not.
        """
        size = self.memory.size()
        if size < len(self.memory):
            raise UserError(
                f"{self.path}: cut short while it was read: {size:,} bytes where there were "
                f"{len(self.memory):,}; prepare the text again"
            )


def _read_index(file: _Mapped) -> tuple[np.dtype[Any], Array, Array, Array]:
    """Return the tokens' type, the sequences' lengths and offsets, and the document index."""
    magic, version, code, sequences, entries = _HEADER.unpack(file.memory[: _HEADER.size])
    if magic != MAGIC or version != 1 or code not in _TYPES:
        raise UserError(
            f"{file.path}: not a token index of the MMIDIDX format, version 1, with whole numbers"
        )
    # Python's integers: numpy's would overflow on a damaged header.
    ends = list(itertools.accumulate([_HEADER.size, 4 * sequences, 8 * sequences, 8 * entries]))
    # Corpora of text and images add a byte for each sequence.
    if entries < 1 or len(file.memory) not in (ends[-1], ends[-1] + sequences):
        raise UserError(_CUT.format(file.path))
    data = file.read(np.dtype(np.uint8))
    types = ("<i4", "<i8", "<i8")
    parts = [data[a:b].view(t) for a, b, t in zip(ends[:-1], ends[1:], types, strict=True)]
    return np.dtype(_TYPES[code]), parts[0], parts[1], np.array(parts[2])


class ShardWriter:
    """A writer of `prefix.bin` and `prefix.idx`, which take their names when both are whole.

        with ShardWriter("shards/train", vocab_size) as writer:
            writer.add(tokens, sequence_lengths, document_lengths)

    Tokens are written as they come; the lengths of sequences (4 bytes each) and documents (8 bytes
    each) are kept in memory, because the format puts their number first.

    Args:
        prefix: the path without `.bin` and `.idx`.
        vocab_size: number of ids; tokens are uint16 where that is enough, else int32.

    Attributes:
        files: size in bytes and checksum of each file by its name, once it is closed.
    """

    def __init__(self, prefix: str | Path, vocab_size: int) -> None:
        self.prefix = Path(prefix)
        self._code = 8 if vocab_size <= 1 << 16 else 4
        self.dtype = np.dtype(_TYPES[self._code]).newbyteorder("<")
        self.files: dict[str, dict[str, int | str]] = {}
        self._lengths: list[Array] = []
        self._documents: list[Array] = []
        self._paths = _paths(self.prefix)
        self._parts = [path.with_name(f".{path.name}.part") for path in self._paths]

    def __enter__(self) -> ShardWriter:
        with atomic.user_errors(self.prefix):
            self._bin = _Hashed(self._parts[0].open("wb"))
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
        self._lengths.append(sequence_lengths.astype("<i4"))
        self._documents.append(document_lengths.astype("<i8"))

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
            with suppress(OSError):  # a full disk again; an error was raised already
                self._bin.file.close()
            for part in self._parts:
                part.unlink(missing_ok=True)

    def _finish(self) -> None:
        lengths = np.concatenate([np.empty(0, "<i4"), *self._lengths])
        counts = np.concatenate([np.zeros(1, "<i8"), *self._documents])
        with self._parts[1].open("wb") as file:
            idx = _Hashed(file)
            idx.write(_HEADER.pack(MAGIC, 1, self._code, len(lengths), len(counts)))
            idx.write(lengths.data)
            offset = 0
            for at in range(0, len(lengths), _BLOCK):
                ends = offset + np.cumsum(lengths[at : at + _BLOCK], dtype="<i8")
                starts = np.concatenate([np.array([offset]), ends[:-1]])
                idx.write((starts * self.dtype.itemsize).astype("<i8").data)
                offset = int(ends[-1])
            idx.write(np.cumsum(counts, dtype="<i8").data)
            written = [self._bin.close(), idx.close()]
        for part, path, entry in zip(self._parts, self._paths, written, strict=True):
            part.replace(path)
            self.files[path.name] = entry


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
