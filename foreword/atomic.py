"""Writing files so that a kill at any moment leaves the old one or the new one, never half."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from foreword.errors import UserError


def write_text(path: Path, text: str) -> None:
    """Writes beside, flushes, renames.

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
    beside = path.with_name(f".{path.name}.part")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)


@contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """A text file to write to, which takes the name `path` only when it is whole.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    beside = path.with_name(f".{path.name}.part")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)


@contextmanager
def folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which takes the name `path` only when it is whole and on the disk.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    beside = path.with_name(f".{path.name}.part")
    with explained(path):
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        try:
            yield beside
            for file in beside.rglob("*"):
                if file.is_file():
                    with file.open("rb") as opened:
                        os.fsync(opened.fileno())
            if path.exists():
                shutil.rmtree(path)
            beside.replace(path)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise


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
