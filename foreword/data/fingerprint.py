"""Fingerprints of text: equal fingerprints mean equal documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from foreword.data.text_files import ReadSettings
from foreword.disk import atomic
from foreword.errors import UserError


def fingerprint_text(files: Sequence[Path], read: ReadSettings) -> str:
    """Return a hash of the files' bytes and of how they are read, equal for equal documents.

    Raises:
        UserError: a file cannot be read.
    """
    try:
        with ThreadPoolExecutor() as threads:
            checksums = list(threads.map(atomic.checksum, files))
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from None
    kinds = ["".join(file.suffixes[-2:]).lower() for file in files]
    return digest([kinds, checksums, asdict(read)])


def digest(value: Any) -> str:
    """Return the hash of a JSON value, in hex."""
    return atomic.digest(json.dumps(value))


def file_state(file: Path) -> tuple[int, int]:
    """Return a file's size and modification time, which change when it does."""
    try:
        stat = file.stat()
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None
    return stat.st_size, stat.st_mtime_ns
