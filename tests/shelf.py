"""A shelf of runs that tests share: each is made once a session, by the worker that comes first.

A test gets a copy, which costs less than a millisecond, and may write to it; hard links would pass
on to all others what a test writes into a file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

FOLDER = "FOREWORD_TEST_SHELF"  # a variable of the environment, set by `tests/conftest.py`


def made(key: str, make: Callable[[Path], object]) -> Path:
    """Return the folder that `make` filled, once for each key; not to be written to."""
    stored = Path(os.environ[FOLDER], hashlib.sha256(key.encode()).hexdigest()[:32])
    with stored.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stored.exists():
            part = stored.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)  # of a test that failed or was stopped
            make(part)
            part.rename(stored)
    return stored


def copied(key: str, make: Callable[[Path], object], out: Path) -> Path:
    """Return `out`, filled with a copy of the folder that `make` fills."""
    return Path(shutil.copytree(made(key, make), out, dirs_exist_ok=True))
