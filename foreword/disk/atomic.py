"""Atomic writes: a kill or a power cut at any moment leaves the old or the new, never half.

A file or folder is written next to its final path, under a name that begins with a dot, until it is
whole and flushed to the disk; then it is renamed, and the folder that holds the name is flushed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO, overload

from foreword.errors import UserError

LOCK = ".lock"  # in a folder that one process at a time may write to
OTHER_OUT = "choose another --out"
FROM_A_FILE = "save its content as a file first"
MOVE_AWAY = "move it away"  # of what is in the way of a result that belongs in a run
MOMENT = 1.0  # seconds that another process may hold a lock that only looks at the folder
TEMPORARY = "foreword-"  # the prefix of temporary folders
YOUNG = 60.0  # seconds in which a temporary folder may not be locked yet

# Errors of systems and file systems that cannot flush a folder's names to the disk.
_NO_SYNC = (errno.EACCES, errno.EBADF, errno.EINVAL, errno.EISDIR)


def write_text(path: Path, text: str) -> None:
    """Write a text file.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    with writing(path) as file:
        file.write(text)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file of bytes.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    with writing(path, "wb") as file:
        file.write(data)


@overload
def writing(path: Path, *, is_new: bool = False) -> AbstractContextManager[TextIO]: ...


@overload
def writing(
    path: Path, mode: Literal["wb"], *, is_new: bool = False
) -> AbstractContextManager[BinaryIO]: ...


@contextmanager
def writing(path: Path, mode: Literal["w", "wb"] = "w", *, is_new: bool = False) -> Iterator[Any]:
    """Open a file to write to, which takes the name `path` only when it is whole and on the disk.

    Args:
        path: the name; missing folders are made.
        mode: `"w"` for text, in UTF-8 with lines that end in a line feed, or `"wb"` for bytes.
        is_new: whether a file of that name is never replaced.

    Raises:
        UserError: the disk is full, the folder cannot be written, another process or thread writes
            this file, or it exists and must be new.
    """
    require_no_device(path)
    path = _resolve_link(path)
    part = path.with_name(f".{path.name}.part")
    encoding, newline = ("utf-8", "\n") if mode == "w" else (None, None)
    with user_errors(path):
        _make_folder(path.parent)
        with _opened_alone(part, path) as number:
            os.truncate(number, 0)
            try:
                if is_new and path.exists():
                    raise UserError(f"{path}: already exists; {OTHER_OUT}")
                with open(number, mode, encoding=encoding, newline=newline, closefd=False) as file:
                    yield file
                    file.flush()
                    os.fsync(number)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
        _sync(path.parent)


@contextmanager
def _opened_alone(part: Path, path: Path, *, is_folder: bool = False) -> Iterator[int]:
    """Open and lock the file or folder in which `path` is written; yield its descriptor."""
    flags = os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT
    while True:
        if is_folder:
            part.mkdir(exist_ok=True)
        number = os.open(part, flags, 0o666)
        try:
            if not _try_lock(number):
                raise UserError(
                    f"{path}: another process or thread is writing it; wait until it ends, or "
                    "choose another name"
                )
            # Another writer may have given it its name since it was opened; then there is none.
            if _inode(part) == _inode_of(os.fstat(number)):
                yield number
                return
        finally:
            os.close(number)


def _try_lock(number: int, *, wait: bool = False) -> bool:
    """Lock an open file or folder until it is closed; return False if another has locked it.

    Without effect on a system, or a file system, without locks.
    """
    try:
        import fcntl

        fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


@contextmanager
def folder(path: Path) -> Iterator[Path]:
    """Make a folder to fill, which takes the name `path` only when it is whole and on the disk.

    An existing folder is renamed first and deleted last. After a kill between the two, the next
    call restores it. An error within the block leaves nothing, and its message names `path`.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    require_no_device(path)
    path = _resolve_link(path)
    part, old = partial_folder(path), path.with_name(f".{path.name}.old")
    with user_errors(path):
        if path.is_file():
            raise NotADirectoryError(errno.ENOTDIR, "is a file, where a folder is to be written")
        _make_folder(path.parent)
        with _opened_alone(part, path, is_folder=True) as number:
            _restore(path, old)
            _empty(part)
            try:
                yield part
                for written in [part, *part.rglob("*")]:
                    _sync(written)
                if path.exists():
                    path.replace(old)
                part.replace(path)
                _sync(path.parent)
            except UserError as error:
                error.args = (str(error).replace(str(part), str(path)),)
                raise
            finally:
                _restore(path, old)
                if _inode(part) == _inode_of(os.fstat(number)):  # else another process's
                    shutil.rmtree(part, ignore_errors=True)


def partial_folder(path: Path) -> Path:
    """Return the folder in which `folder` writes, where other processes may write too."""
    return path.with_name(f".{path.name}.part")


def _restore(path: Path, old: Path) -> None:
    """Restore the old folder if there is no new one; else remove it."""
    if old.exists() and not path.exists():
        old.replace(path)
    shutil.rmtree(old, ignore_errors=True)


def _empty(folder: Path) -> None:
    """Remove all that an earlier call has left in a folder."""
    for leftover in folder.iterdir():
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file that a user names, which must end.

    Raises:
        OSError: it cannot be read.
        UserError: it is a device, a pipe or a socket.
    """
    require_no_device(path, FROM_A_FILE)
    return path.read_bytes()


def require_writable(
    path: Path, *, is_folder: bool, is_replaced: bool = False, remedy: str = OTHER_OUT
) -> None:
    """Check before the work that its result can be written.

    A folder is made on trial beside or in `path`, with missing parents, and removed. What exists at
    `path` may be replaced or written into, so it must be of the right kind.

    Args:
        path: the path of the result.
        is_folder: whether the result is a folder; else it is a file.
        is_replaced: whether an existing folder is replaced (`folder`), not written into.
        remedy: the way out if something else exists there.

    Raises:
        UserError: something else exists there, or the system refuses to write.
    """
    require_no_device(path, remedy)
    path = _resolve_link(path, remedy)
    with user_errors(path):
        if path.exists() and path.is_dir() != is_folder:
            kind = "file" if is_folder else "folder"
            raise UserError(f"{path}: is a {kind}; {remedy}")
        if not path.name and is_replaced:
            raise UserError(f"{path}: cannot be replaced by another folder; {remedy}")
        full = path.absolute()
        above = next(one for one in (full.parent, *full.parents) if one.exists())
        if not above.is_dir():
            raise UserError(f"{path}: {above} is a file; {remedy}")
        is_inside = path.is_dir() and not is_replaced
        trial = path / ".foreword.test" if is_inside else path.with_name(f".{path.name}.test")
        _make_and_remove(trial.absolute())


def require_new_folder(path: Path, remedy: str = OTHER_OUT) -> None:
    """Check before the work that `path` can be made a folder, and overwrites nothing.

    Raises:
        UserError: it holds something, or something else exists there, or the system refuses.
    """
    require_writable(path, is_folder=True, is_replaced=True)
    if path.is_dir() and any(path.iterdir()):
        raise UserError(f"{path}: is not empty; {remedy}")


def _make_and_remove(trial: Path) -> None:
    """Make an empty folder with missing parents, and remove all of them."""
    missing = [one for one in trial.parents if not one.exists()]
    try:
        trial.mkdir(parents=True, exist_ok=True)
    finally:
        for one in (trial, *missing):
            with suppress(OSError):
                one.rmdir()


def require_no_device(path: Path, remedy: str = OTHER_OUT) -> None:
    """Check that `path` is not a device, a pipe or a socket: reading may not end, nor writing last.

    Raises:
        UserError: it is one.
    """
    is_local = isinstance(path, Path)  # and not a URL, which readers take like one
    if is_local and path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(f"{path}: is a device, a pipe or a socket; {remedy}")


def _resolve_link(path: Path, remedy: str = OTHER_OUT) -> Path:
    """Return the target of a link, so that the target is replaced and the link stays."""
    if not path.is_symlink():
        return path
    try:
        target = path.resolve()
    except RuntimeError:  # before Python 3.13
        target = path
    if target.is_symlink():
        raise UserError(f"{path}: is a link that leads to itself; {remedy}")
    if not target.parent.is_dir():
        raise UserError(f"{path}: is a link into {target.parent}, which does not exist; {remedy}")
    return target


def _make_folder(path: Path) -> None:
    """Make a folder and its parents, and flush their names to the disk."""
    require_not_removed(path)
    new = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for one in new:
        _sync(one.parent)


def _sync(path: Path) -> None:
    """Flush a file's content, or a folder's names, to the disk."""
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
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Make a folder and lock it against other writers until the block or the process ends.

    Readers take no lock. On a file system without locks it has no effect.

    Args:
        path: the folder.
        wait: whether to wait until another process has unlocked it.

    Raises:
        UserError: another process has locked it, or the folder cannot be written.
    """
    require_no_device(path)
    with user_errors(path):
        _make_folder(path)
        lock = (path / LOCK).open("w")
    with lock, guarded(path):
        end = time.monotonic() + MOMENT
        while not _try_lock(lock.fileno(), wait=wait):
            if time.monotonic() > end:
                raise UserError(
                    f"{path}: another process is writing here; wait until it ends, or stop it"
                )
            time.sleep(0.02)
        yield


def is_locked(path: Path) -> bool:
    """Return whether a process writes to a folder that it has `locked`."""
    try:
        with (path / LOCK).open() as lock:
            return not _try_lock(lock.fileno())
    except OSError:
        return False


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a temporary folder, and remove it at the end; after a kill, the next call does."""
    for left in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*"):
        with suppress(OSError, UserError):  # another user's, or one that is in use
            if (left / LOCK).exists() and time.time() - left.stat().st_mtime > YOUNG:
                with locked(left):
                    shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as made, locked(Path(made)):
        folder = Path(made) / "content"
        folder.mkdir()
        yield folder


@contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """Keep a folder that the user removes within the block from being made again by a write."""
    _guarded[folder.absolute()] += 1
    try:
        yield
    finally:
        _guarded[folder.absolute()] -= 1


_guarded: Counter[Path] = Counter()  # folders that must not be made again


def require_not_removed(path: Path) -> None:
    """Check that no guarded folder at or above `path` was removed.

    Raises:
        UserError: one was.
    """
    for above in (path.absolute(), *path.absolute().parents):
        if _guarded[above] and not above.is_dir():
            raise UserError(f"{above}: was removed while it was written to")


def _inode(path: Path) -> tuple[int, int] | None:
    """Return what tells a file or folder from a later one of its name; None if there is none."""
    try:
        return _inode_of(path.stat())
    except OSError:
        return None


def _inode_of(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino


@contextmanager
def user_errors(path: Path) -> Iterator[None]:
    """Turn an operating system's refusal to write `path` into a UserError of one line."""
    try:
        yield
    except OSError as error:
        require_not_removed(path)
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
    except Exception as error:
        if "SafetensorError" not in type(error).__name__:  # which reports a full disk
            raise
        require_not_removed(path)
        reason = re.search(r"I/O error: (.*) \(os error", str(error))
        raise UserError(f"{path}: cannot be written: {reason[1] if reason else error}") from error


def digest(text: str) -> str:
    """Return the BLAKE2b hash of a text, in hex."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def checksum(path: Path) -> str:
    """Return the BLAKE2b hash of a file's bytes, in hex."""
    require_no_device(path, FROM_A_FILE)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
