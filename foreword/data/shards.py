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

import itertools
import mmap
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from foreword.data.lazy_tokens import ChainedTokens
from foreword.data.remote_tokens import SUFFIX, RemoteTokens, TokensAt
from foreword.errors import UserError
from foreword.types import Array

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
TYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}
BLOCK = 1 << 20  # tokens, or entries of the index, at once
_CUT = "{}: cut short, or not a token index; prepare the text again"


@dataclass(frozen=True)
class Shards:
    """Tokens on disk, mapped into memory: only the accessed part is read.

    Attributes:
        prefix: the path without `.bin` and `.idx`.
        all_tokens: what `tokens` returns.
        sequence_lengths: tokens in each sequence, (sequences,) int32.
        document_index: the first sequence of each document, and the end; (documents + 1,) int64.
            Mapped too, and not aligned: indexed and sliced, for numpy's functions copy all of it.
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
        bin_path, idx_path = paths_of(prefix)
        remote_path = bin_path.with_suffix(SUFFIX)
        is_remote = not bin_path.exists() and remote_path.is_file()
        for path in (remote_path if is_remote else bin_path, idx_path):
            if not path.is_file():
                raise UserError(f"{path}: there is no such file; 'foreword prepare' makes it")
        if idx_path.stat().st_size < HEADER.size:
            raise UserError(_CUT.format(idx_path))
        index = _Mapped.of(idx_path)
        dtype, lengths, pointers, documents = _read_index(index)
        is_whole = documents[0] == 0 and documents[-1] == len(lengths)
        for at in range(0, len(documents), BLOCK):
            is_whole &= bool((np.diff(documents[at : at + BLOCK + 1]) >= 0).all())
            index.release()
        end = 0
        for at, starts in _sequence_starts(lengths):
            offsets, end = starts[:-1] * dtype.itemsize, int(starts[-1])
            is_whole &= bool((np.diff(starts) >= 0).all())
            is_whole &= np.array_equal(pointers[at : at + len(offsets)], offsets)
            index.release()
        if not is_whole:
            raise UserError(f"{idx_path}: the index contradicts itself; prepare the text again")
        remote = TokensAt.read(remote_path) if is_remote else None
        size = bin_path.stat().st_size if remote is None else remote.bytes
        expected = end * dtype.itemsize
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
    def chain(cls, prefix: str | Path, parts: Sequence[Shards]) -> Shards:
        """Return the documents of several shards, one after the other; tokens are not copied.

        Args:
            prefix: names them in messages.
            parts: the shards, at least one.
        """
        sequences = np.cumsum([0, *(len(shards.sequence_lengths) for shards in parts)])
        indices = [
            shards.document_index[:-1] + n for shards, n in zip(parts, sequences, strict=False)
        ]
        return cls(
            Path(prefix),
            ChainedTokens([shards.all_tokens for shards in parts]).as_array(),
            ChainedTokens([shards.sequence_lengths for shards in parts]).as_array(),
            np.concatenate([*indices, sequences[-1:]]),
            tuple(file for shards in parts for file in shards.mapped),
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
        self.require_complete()
        return self.all_tokens

    def require_complete(self) -> None:
        """Check that no file has been cut short since it was opened.

        The system kills a process that reads a mapped file beyond its end. So this comes before
        every batch, and takes microseconds; a file cut while a batch is read still kills.

        Raises:
            UserError: one has been.
        """
        for file in self.mapped:
            file.require_complete()

    @property
    def tokens_total(self) -> int:
        """Number of tokens."""
        return len(self.all_tokens)

    def counts(self, vocab: int) -> Array:
        """Return the frequency of each token, (vocab,) int64."""
        counts = np.zeros(vocab, dtype=np.int64)
        for at in range(0, self.tokens_total, BLOCK):
            counts += np.bincount(self.tokens[at : at + BLOCK], minlength=vocab)[:vocab]
        return counts

    def require_variety(self) -> None:
        """Check that there are two different tokens; reads only the beginning of most texts.

        Raises:
            UserError: all tokens are the same.
        """
        for at in range(0, self.tokens_total, BLOCK):
            if (self.tokens[at : at + BLOCK] != self.tokens[0]).any():
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

    @property
    def document_starts(self) -> Array:
        """The first token of each document, and the end; (documents + 1,) int64, made each time.

        Memory is that of the documents, not of their sequences.
        """
        starts, first = np.zeros(len(self.document_index), dtype=np.int64), 0
        for at, block in _sequence_starts(self.sequence_lengths):
            last = bisect_left(self.document_index, at + len(block), first)
            starts[first:last] = block[self.document_index[first:last] - at]
            first = last
            for file in self.mapped:
                file.release()
        return starts


def _sequence_starts(lengths: Array) -> Iterator[tuple[int, Array]]:
    """Yield the first token of each sequence and the end of the last, for a block of them at once.

    Yields:
        The number of the block's first sequence, and (sequences + 1,) int64.
    """
    end = 0
    for at in range(0, len(lengths), BLOCK):
        starts = end + np.cumsum(np.append(0, lengths[at : at + BLOCK]), dtype=np.int64)
        end = int(starts[-1])
        yield at, starts


def paths_of(prefix: Path) -> tuple[Path, Path]:
    """Return the file of tokens and that of the index."""
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

    def release(self) -> None:
        """Give back the memory of what was read, which is read from disk if it is needed again."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.memory.madvise(mmap.MADV_DONTNEED)

    def require_complete(self) -> None:
        """Check that the file is as long as it was.

        A file that took its name since is of no interest: the mapped one stays.
        """
        size = self.memory.size()
        if size < len(self.memory):
            raise UserError(
                f"{self.path}: cut short while it was read: {size:,} bytes where there were "
                f"{len(self.memory):,}; prepare the text again"
            )


def _read_index(file: _Mapped) -> tuple[np.dtype[Any], Array, Array, Array]:
    """Return the tokens' type, the sequences' lengths and offsets, and the document index."""
    magic, version, code, sequences, entries = HEADER.unpack(file.memory[: HEADER.size])
    if magic != MAGIC or version != 1 or code not in TYPES:
        raise UserError(
            f"{file.path}: not a token index of the MMIDIDX format, version 1, with whole numbers"
        )
    # Python's integers: numpy's would overflow on a damaged header.
    ends = list(itertools.accumulate([HEADER.size, 4 * sequences, 8 * sequences, 8 * entries]))
    # Corpora of text and images add a byte for each sequence.
    if entries < 1 or len(file.memory) not in (ends[-1], ends[-1] + sequences):
        raise UserError(_CUT.format(file.path))
    data = file.read(np.dtype(np.uint8))
    types = ("<i4", "<i8", "<i8")
    parts = [data[a:b].view(t) for a, b, t in zip(ends[:-1], ends[1:], types, strict=True)]
    return np.dtype(TYPES[code]), parts[0], parts[1], parts[2]
