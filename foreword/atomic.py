"""Writing so that a kill or a power cut at any moment leaves the old or the new, never half.

What is written stands beside its place, under a name that begins with a dot, until it is whole and
on the disk; then it takes its name, and the folder that holds the name goes to the disk too.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO, overload

from foreword.errors import UserError

LOCK = ".lock"  # in a folder that one process at a time may work in

# What systems say, or file systems, that have no way to put a folder's names on the disk.
_NO_SYNC = (errno.EACCES, errno.EBADF, errno.EINVAL, errno.EISDIR)


def write_text(path: Path, text: str) -> None:
    """Writes a text file.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    with writing(path) as file:
        file.write(text)


def write_bytes(path: Path, data: bytes) -> None:
    """The same of bytes.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    with writing(path, "wb") as file:
        file.write(data)


@overload
def writing(path: Path) -> AbstractContextManager[TextIO]: ...


@overload
def writing(path: Path, mode: Literal["wb"]) -> AbstractContextManager[BinaryIO]: ...


@contextmanager
def writing(path: Path, mode: Literal["w", "wb"] = "w") -> Iterator[Any]:
    """A file to write to, which takes the name `path` only when it is whole and on the disk.

    Args:
        path: its name; the folder is made.
        mode: `"w"` for text, in UTF-8 with lines that end in a line feed, or `"wb"` for bytes.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    beside = path.with_name(f".{path.name}.part")
    encoding, newline = ("utf-8", "\n") if mode == "w" else (None, None)
    with explained(path):
        _make(path.parent)
        try:
            with beside.open(mode, encoding=encoding, newline=newline) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        _sync(path.parent)


@contextmanager
def folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which takes the name `path` only when it is whole and on the disk.

    One that is there is put aside first and deleted last. A kill between these leaves it aside,
    and the next call puts it back.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    part, old = (path.with_name(f".{path.name}.{end}") for end in ("part", "old"))
    with explained(path):
        _make(path.parent)
        _settle(path, part, old)
        part.mkdir()
        try:
            yield part
            for found in [part, *part.rglob("*")]:
                _sync(found)
            if path.exists():
                path.replace(old)
            part.replace(path)
            _sync(path.parent)
        finally:
            _settle(path, part, old)


def _settle(path: Path, part: Path, old: Path) -> None:
    """Leaves one folder under its own name, and none beside it."""
    if old.exists() and not path.exists():
        old.replace(path)
    for left in (part, old):
        shutil.rmtree(left, ignore_errors=True)


def _make(path: Path) -> None:
    """Makes a folder with those above it, and puts their names on the disk."""
    new = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for one in new:
        _sync(one.parent)


def _sync(path: Path) -> None:
    """Puts a file's content, or a folder's names, on the disk."""
    try:
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


@contextmanager
def alone(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Makes a folder and keeps others who ask for it out, until this process leaves it or ends.

    Who only reads does not ask. Where the file system has no locks, nobody is kept out.

    Args:
        path: the folder.
        wait: until another process has left it.

    Raises:
        UserError: another process is at work there, or the folder cannot be written.
    """
    with explained(path):
        _make(path)
        lock = (path / LOCK).open("w")
    with lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise UserError(
                f"{path}: another process is at work here; wait for its end, or stop it"
            ) from None
        except (ImportError, OSError):  # a system, or a file system, without locks
            pass
        yield


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns an operating system's refusal to write `path` into one line."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error


def checksum(path: Path) -> str:
    """BLAKE2b of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
