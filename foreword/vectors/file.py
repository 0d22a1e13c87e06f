"""Files of word vectors in word2vec's text and binary formats, which gensim reads and writes.

<words> <d_model>\\n
<word> <d_model numbers>\\n       in text, separated by spaces
<word> <d_model x 4 bytes>\\n     in binary, float32, little-endian

GloVe's text files are read too, which lack the first line.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from foreword.disk import atomic
from foreword.errors import UserError
from foreword.types import Array


def write(path: Path, words: Sequence[str], vectors: Array, *, binary: bool = False) -> None:
    """Write a file of vectors; a space within a word becomes `_`.

    Args:
        path: the file.
        words: the words, in the order of the file.
        vectors: the vector of each, (words, d_model).
        binary: whether to write the binary format.

    Raises:
        UserError: it cannot be written.
    """
    names = [word.replace(" ", "_") for word in words]
    head = f"{len(names)} {vectors.shape[1]}\n"
    rows = np.ascontiguousarray(vectors, dtype="<f4")
    if binary:
        cells = [
            name.encode() + b" " + row.tobytes() + b"\n"
            for name, row in zip(names, rows, strict=True)
        ]
        atomic.write_bytes(path, head.encode() + b"".join(cells))
        return
    lines = [
        f"{name} {' '.join(np.char.mod('%.8g', row))}\n"
        for name, row in zip(names, rows, strict=True)
    ]
    atomic.write_text(path, head + "".join(lines))


def read(path: Path) -> tuple[list[str], Array]:
    """Return the words of a file and their vectors, (words, d_model) float32, in either format.

    Raises:
        UserError: it is missing, cut short, or in another format; the message says where.
    """
    try:
        data = atomic.read_bytes(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    head, _, body = data.partition(b"\n")
    count, width = _sizes(path, head)
    if not count:
        count, body = len(data.splitlines()), data
    if count * width > len(body):  # a number takes a byte at least
        raise UserError(
            f"{path}: too short for {count:,} words of {width:,} numbers; is it cut short?"
        )
    words, vectors = (_read_text if _is_text(body, width) else _read_binary)(
        path, body, count, width
    )
    if not np.isfinite(vectors).all():
        raise UserError(f"{path}: contains values that are not finite numbers")
    return words, vectors


def width_of(path: Path) -> int:
    """Return the numbers of a vector in a file, of which only the first line is read.

    Raises:
        UserError: it is missing or in another format.
    """
    atomic.require_no_device(path, atomic.FROM_A_FILE)
    try:
        with path.open("rb") as stream:
            return _sizes(path, stream.readline(1 << 20))[1]
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def _sizes(path: Path, head: bytes) -> tuple[int, int]:
    """Return the number of words, 0 if the first line does not tell, and the size of vectors."""
    cells = head.split()
    try:
        if len(cells) > 2:  # GloVe: a word already
            return 0, len([float(cell) for cell in cells[1:]])
        count, width = map(int, cells)
        if count < 1 or width < 1:
            raise ValueError
    except ValueError:
        raise UserError(
            f"{path}:1: expected the number of words and the size of vectors, got {_quoted(head)}"
        ) from None
    return count, width


def _is_text(body: bytes, width: int) -> bool:
    """Return whether the first line has its numbers as text."""
    cells = body.partition(b"\n")[0].split()[1:]
    try:
        return len([float(cell) for cell in cells]) == width
    except ValueError:
        return len(cells) == width and not _has_control(body[: 8 * width])


def _has_control(data: bytes) -> bool:
    return any(byte < 32 and byte not in b"\t\r\n" for byte in data)


def _read_text(path: Path, body: bytes, count: int, width: int) -> tuple[list[str], Array]:
    lines = body.splitlines()
    if len(lines) != count:
        raise UserError(
            f"{path}: has {len(lines):,} words but its first line says {count:,}; is it cut short?"
        )
    words, vectors = [], np.empty((count, width), dtype=np.float32)
    for n, line in enumerate(lines):
        word, _, values = line.partition(b" ")
        try:
            words.append(word.decode())
            vectors[n] = np.array(values.split(), dtype=np.float32)
        except ValueError:
            raise UserError(
                f"{path}:{n + 2}: expected a word and {width} numbers, got {_quoted(line)}"
            ) from None
    return words, vectors


def _read_binary(path: Path, body: bytes, count: int, width: int) -> tuple[list[str], Array]:
    words, vectors = [], np.empty((count, width), dtype=np.float32)
    at, size = 0, 4 * width
    for n in range(count):
        end = body.find(b" ", at)
        if end < 0 or len(body) < end + 1 + size:
            raise UserError(f"{path}: ends in word {n + 1:,} of {count:,}; it is cut short")
        try:
            words.append(body[at:end].lstrip(b"\n").decode())
        except UnicodeDecodeError:
            raise UserError(f"{path}: word {n + 1:,} is not UTF-8") from None
        vectors[n] = np.frombuffer(body, "<f4", width, end + 1)
        at = end + 1 + size
    return words, vectors


def _quoted(line: bytes) -> str:
    return repr(line[:40].decode(errors="replace"))
