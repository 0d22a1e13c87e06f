"""Writing so that a kill or a power cut at any moment leaves the old or the new, never half.

What is written stands beside its place, under a name that begins with a dot, until it is whole and
on the disk; then it takes its name, and the folder that holds the name goes to the disk too.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
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
    _require_no_device(path)
    path = _followed(path)
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
    _require_no_device(path)
    path = _followed(path)
    part, old = (path.with_name(f".{path.name}.{end}") for end in ("part", "old"))
    with explained(path):
        if path.is_file():
            raise NotADirectoryError(errno.ENOTDIR, "is a file, and a folder is to stand there")
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


def require_writable(path: Path, *, is_folder: bool) -> None:
    """Make sure before the work that its result can be written.

    A folder is made on trial where the result is to stand, with those missing above it, and
    removed. What stands at `path` may be replaced or written into, so it must be of its kind.

    Args:
        path: of the result.
        is_folder: whether that is a folder, or a file.

    Raises:
        UserError: something else stands there, or the system refuses to write.
    """
    _require_no_device(path)
    path = _followed(path)
    with explained(path):
        if path.exists() and path.is_dir() != is_folder:
            kind = "file" if is_folder else "folder"
            raise UserError(f"{path}: is a {kind}; choose another --out")
        above = next(one for one in path.absolute().parents if one.exists())
        if not above.is_dir():
            raise UserError(f"{path}: {above} is a file; choose another --out")
        trial = path / ".test" if path.is_dir() else path.with_name(f".{path.name}.test")
        _make_and_remove(trial.absolute())


def _make_and_remove(trial: Path) -> None:
    """Make an empty folder, with those missing above it, and remove all of them."""
    missing = [one for one in trial.parents if not one.exists()]
    try:
        trial.mkdir(parents=True, exist_ok=True)
    finally:
        for one in (trial, *missing):
            with suppress(OSError):
                one.rmdir()


def _require_no_device(path: Path) -> None:
    """Make sure that nothing stands at `path` but a file or a folder, which may be replaced.

    A device, a pipe or a socket is neither: a folder or file that took its name would remove it.

    Raises:
        UserError: something else does.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(f"{path}: is a device, a pipe or a socket; choose another --out")


def _followed(path: Path) -> Path:
    """Where a link leads, so that what it leads to is replaced and it stays."""
    return path.resolve() if path.is_symlink() else path


def _make(path: Path) -> None:
    """Makes a folder with those above it, and puts their names on the disk."""
    require_there(path)
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
def alone(path: Path, *, wait: bool = False, own: Sequence[str] = ()) -> Iterator[None]:
    """Makes a folder and keeps others who ask for it out, until this process leaves it or ends.

    Who only reads does not ask. Where the file system has no locks, nobody is kept out.

    Args:
        path: the folder.
        wait: until another process has left it.
        own: names of files there that nothing but a removal of the folder takes away. Once they and
            the lock are all gone, what this process wrote meanwhile is removed too.

    Raises:
        UserError: another process is at work there, or the folder cannot be written.
    """
    _require_no_device(path)
    with explained(path):
        _make(path)
        lock = (path / LOCK).open("w")
    with lock:
        found = os.fstat(lock.fileno())
        with staying(path, _Lock((found.st_dev, found.st_ino), tuple(own)) if own else None):
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


@dataclass(frozen=True)
class _Lock:
    """The lock of a folder, by its inode, and the names of files that stay there like it."""

    inode: tuple[int, int]
    own: tuple[str, ...]

    def is_gone(self, folder: Path) -> bool:
        """Whether nothing that belongs to this process is left in a folder."""
        found = _inode(folder / LOCK)
        if found is not None:
            return found != self.inode
        return not any((folder / name).exists() for name in self.own)


@contextmanager
def staying(folder: Path, lock: _Lock | None = None) -> Iterator[None]:
    """Keeps a folder, once it is removed by somebody, from being made again in part.

    Whatever is written into it meanwhile, by the functions of this module, asks whether it is still
    the folder that was there at the beginning.

    Args:
        folder: that is there.
        lock: that this process holds of it. A removal that finds the folder not empty, since this
            process was just writing, takes this away all the same; the rest follows at the end.
    """
    key, before = folder.absolute(), _there.get(folder.absolute())
    found = folder.stat()
    _there[key] = ((found.st_dev, found.st_ino), lock)
    try:
        yield
    finally:
        inode, _ = _there[key]
        is_left = lock is not None and lock.is_gone(folder) and not (folder / LOCK).exists()
        if is_left and _inode(folder) == inode:
            shutil.rmtree(folder, ignore_errors=True)
        if before is None:
            _there.pop(key, None)
        else:
            _there[key] = before


# Folders that must not be made again: their inodes, and their locks where this process holds any.
_there: dict[Path, tuple[tuple[int, int], _Lock | None]] = {}


def require_there(path: Path) -> None:
    """Make sure that neither `path` nor a folder above it was removed that is `staying`.

    Raises:
        UserError: one was.
    """
    for above in (path.absolute(), *path.absolute().parents):
        if (wanted := _there.get(above)) is None:
            continue
        inode, lock = wanted
        if _inode(above) != inode or (lock is not None and lock.is_gone(above)):
            raise UserError(f"{above}: was removed while it was written to")


def _inode(path: Path) -> tuple[int, int] | None:
    """Return what tells a file or folder from a later one of its name; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns an operating system's refusal to write `path` into one line."""
    try:
        yield
    except OSError as error:
        require_there(path)
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
    except Exception as error:
        if "SafetensorError" not in type(error).__name__:  # which reports a full disk
            raise
        require_there(path)
        found = re.search(r"I/O error: (.*) \(os error", str(error))
        raise UserError(f"{path}: cannot be written: {found[1] if found else error}") from error


def checksum(path: Path) -> str:
    """BLAKE2b of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
