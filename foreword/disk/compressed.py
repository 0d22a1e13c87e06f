"""Compressed files as streams of their bytes, by the ending of the name."""

from __future__ import annotations

from io import BufferedReader, RawIOBase
from lzma import LZMAError, LZMAFile
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}

_BLOCK = 1 << 20  # bytes


def compression_of(path: Path) -> str | None:
    """Return the compression of a file, by its name; None if it has none."""
    return COMPRESSIONS.get(path.suffix.lower())


def decompressed(raw: IO[bytes], path: Path) -> Any:
    """Return an open file as a stream of decompressed bytes; the file stays its owner's."""
    codec = compression_of(path)
    if codec is None:
        return raw
    stream: Any = _XZ(raw) if codec == "xz" else pa.CompressedInputStream(raw, codec)
    return BufferedReader(stream, _BLOCK)


class _XZ(RawIOBase):
    """A file compressed by xz, whose errors are of the same class as those of other compressions.

    Args:
        raw: the compressed bytes.
    """

    def __init__(self, raw: IO[bytes]) -> None:
        self._stream = LZMAFile(raw)  # noqa: SIM115  (the raw file is its owner's)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read as many decompressed bytes as there are and fit."""
        try:
            data = self._stream.read1(len(buffer))
        except (EOFError, LZMAError) as error:
            raise OSError(str(error)) from None
        buffer[: len(data)] = data
        return len(data)
