"""What text is told by: equal fingerprints, equal documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from foreword import atomic
from foreword.data.text_files import ReadSettings
from foreword.errors import UserError


def fingerprint_text(files: Sequence[Path], read: ReadSettings) -> str:
    """Equal for equal documents: a hash of the files' bytes and of how they are read.

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
    """A hash of what JSON can hold, in hex."""
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=16).hexdigest()


def state_of(file: Path) -> tuple[int, int]:
    """What changes when a file does: its size and the time of its last change."""
    try:
        found = file.stat()
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None
    return found.st_size, found.st_mtime_ns
