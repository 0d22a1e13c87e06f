"""Compressed files as streams of their bytes, by the ending of the name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from lzma import LZMAError, LZMAFile
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from foreword.disk import atomic

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}

BLOCK = 1 << 20  # bytes read at once


def compression_of(path: Path) -> str | None:
    """Return the compression of a file, by its name; None if it has none."""
    return COMPRESSIONS.get(path.suffix.lower())


def decompressed(raw: IO[bytes], path: Path) -> Any:
    """Return an open file as a stream of decompressed bytes; the file stays its owner's."""
    codec = compression_of(path)
    if codec is None:
        return raw
    stream: Any = _XZ(raw) if codec == "xz" else pa.CompressedInputStream(raw, codec)
    return BufferedReader(stream, 1 << 16)  # few ahead: sizes are estimated by what was read


@contextmanager
def copied(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    """Copy a stream to a temporary file, for a format that is read from its end.

    The file has no name, so nothing remains however the process ends.
    """
    with tempfile.TemporaryFile() as copy:
        while block := stream.read(BLOCK):
            with atomic.user_errors(Path(tempfile.gettempdir())):
                copy.write(block)
                copy.flush()
        yield copy


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
