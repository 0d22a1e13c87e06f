"""Tokens on object storage, read as training asks for them through a bounded cache on disk.

A folder of shards on `s3://...`, or on any other storage that fsspec reads, is mirrored to a local
folder in which `train.bin` is replaced by a note of where it is, `train.url`. All else, which is
small, is copied.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foreword.data.fingerprint import digest
from foreword.data.lazy_tokens import LazyTokens
from foreword.data.read_documents import is_text
from foreword.data.remote import RemoteFile, is_url, join, storage_of, url_errors
from foreword.data.text_files import ReadSettings
from foreword.disk import atomic, credentials, stored
from foreword.errors import UserError
from foreword.settings import config
from foreword.types import Array

SUFFIX = ".url"  # in place of `.bin`
BLOCK = 1 << 16  # bytes that are read at once: little more than a row, or rows are read with others
CACHE = 10_000_000_000  # bytes on disk, at most, where the variable does not say
VARIABLE = "FOREWORD_CACHE_BYTES"
_COPIED = (
    *("prepared.json", "train.idx", "heldout.idx", "heldout.bin"),
    *("tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json", "tokenizer/manifest.json"),
)


@dataclass(frozen=True)
class TokensAt:
    """Where the tokens of shards are; the content of `train.url`.

    Attributes:
        url: the URL of the file.
        bytes: its size.
    """

    url: str
    bytes: int

    @classmethod
    def read(cls, path: Path) -> TokensAt:
        """Read the note in place of a file of tokens.

        Raises:
            UserError: it is damaged.
        """
        table = stored.read(path)
        fields = {key: value for key, value in table.items() if key != "checksum"}
        return config.build(cls, fields, path.name)


class RemoteTokens(LazyTokens):
    """The tokens of a file on object storage.

    Blocks that were read are kept on disk, the last used ones; memory does not grow.

    Args:
        file: where the file is.
        dtype: type of the tokens.
        cache: bytes on disk, at most; by default `cache_bytes`.

    Raises:
        UserError: the storage cannot be reached, or the variable is no size.
    """

    def __init__(self, file: TokensAt, dtype: np.dtype[Any], cache: int | None = None) -> None:
        self.dtype = dtype
        self._file = file
        self._slots: OrderedDict[int, int] = OrderedDict()  # of each block, the last used last
        self._most = max(1, (cache_bytes() if cache is None else cache) // BLOCK)
        self._lock = threading.Lock()
        self._cache = tempfile.TemporaryFile(prefix="foreword-tokens-")  # noqa: SIM115  (lives on)

    def __len__(self) -> int:
        return self._file.bytes // self.dtype.itemsize

    def _take(self, indices: Array) -> Array:
        per_block = BLOCK // self.dtype.itemsize
        tokens = np.empty(len(indices), self.dtype)
        order = np.argsort(indices, kind="stable")
        blocks, begins = np.unique(indices[order] // per_block, return_index=True)
        parts = np.split(order, begins[1:])  # the places of each block's tokens
        with self._lock:
            # As many blocks at once as the cache holds.
            for first in range(0, len(blocks), self._most):
                numbers = [int(n) for n in blocks[first : first + self._most]]
                cached = [n for n in numbers if n in self._slots]
                for n in cached:
                    self._slots.move_to_end(n)
                self._fetch([n for n in numbers if n not in self._slots])
                for n, places in zip(numbers, parts[first:], strict=False):
                    size = self._bytes_of(n)
                    data = os.pread(self._cache.fileno(), size, self._slots[n] * BLOCK)
                    block = np.frombuffer(data, self.dtype)
                    tokens[places] = block[indices[places] - n * per_block]
        return tokens

    def _bytes_of(self, block: int) -> int:
        return min(BLOCK, self._file.bytes - block * BLOCK)

    def _fetch(self, blocks: list[int]) -> None:
        """Read blocks from the storage, all at once, into the slots of those not used for long."""
        if not blocks:
            return
        url = self._file.url
        starts = [n * BLOCK for n in blocks]
        ends = [start + self._bytes_of(n) for n, start in zip(blocks, starts, strict=True)]
        with url_errors(url):
            storage, path = storage_of(url)
            contents = storage.cat_ranges([path] * len(blocks), starts, ends, on_error="raise")
        for n, data in zip(blocks, contents, strict=True):
            if len(data) != self._bytes_of(n):
                raise UserError(f"{url}: cut short while it was read; prepare the text again")
            free = len(self._slots) < self._most
            slot = len(self._slots) if free else self._slots.popitem(last=False)[1]
            self._keep(data, slot * BLOCK)
            self._slots[n] = slot

    def _keep(self, data: bytes, start: int) -> None:
        """Write a block to the cache."""
        written = 0
        try:
            while written < len(data):  # a full disk takes a part of a block
                written += os.pwrite(self._cache.fileno(), data[written:], start + written)
        except OSError as error:
            self._slots.clear()
            raise UserError(
                f"{tempfile.gettempdir()}: no room for tokens of {self._file.url}: "
                f"{error.strerror}; set TMPDIR to a folder on another disk, or {VARIABLE} lower"
            ) from error


def cache_bytes() -> int:
    """Return how much disk a file's cache may take, which belongs to the machine, not the recipe.

    Raises:
        UserError: the environment variable is not a number of bytes.
    """
    text = os.environ.get(VARIABLE) or str(CACHE)
    try:
        count = int(float(text))
    except (ValueError, OverflowError):
        count = 0
    if count < 1:
        raise UserError(f"{VARIABLE}: must be a number of bytes, such as 5e10, got {text!r}")
    return count


def local(text: str) -> str:
    """Return a text as it is, or the mirror of shards on object storage in the user's cache folder.

    Raises:
        UserError: the storage cannot be reached.
    """
    if not is_url(text) or is_text(RemoteFile(text), ReadSettings()):
        return text
    with url_errors(text):
        storage, path = storage_of(text)
        if not storage.exists(join(path, "prepared.json")):
            return text
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = digest(credentials.masked(text).rstrip("/"))
    return str(mirror(text, caches / "foreword" / "shards" / name))


def mirror(url: str, folder: Path) -> Path:
    """Mirror shards on object storage to a local folder; their training tokens stay there.

    Args:
        url: the folder that `prepare` wrote, copied to object storage.
        folder: the local folder; an earlier mirror is brought up to date.

    Raises:
        UserError: the storage cannot be reached, or there are no shards.
    """
    with url_errors(url):
        storage, path = storage_of(url)
        with atomic.user_errors(folder):
            (folder / "tokenizer").mkdir(parents=True, exist_ok=True)
        for name in _COPIED:
            if storage.exists(join(path, name)):
                # Another training may have the earlier file open.
                part = folder / f"{name}.{os.getpid()}.part"
                storage.get_file(join(path, name), str(part))
                part.replace(folder / name)
        size = int(storage.size(join(path, "train.bin")))
    stored.write(folder / f"train{SUFFIX}", {"url": join(url, "train.bin"), "bytes": size})
    return folder
