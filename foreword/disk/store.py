"""Finished work in JSON files, found again by its key: all that it was made from.

So nothing is done twice, and nothing stale is used. Keys are compared as values, not as text, so
that a setting added later, with its default, changes nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from itertools import count
from pathlib import Path
from typing import Any

from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.settings import config

KEY = "key"  # the part of a file that holds it


def find(folder: Path, key: Any) -> Path | None:
    """Return the first file with this key, a dataclass or JSON; None if there is none."""
    return next((file for file in sorted(folder.glob("*.json")) if _has_key(file, key)), None)


def save(folder: Path, content: Mapping[str, Any], plot: bytes | None = None) -> Path:
    """Write a result, named by its `name`, with its plot beside it; return the file."""
    file = folder / f"{content['name']}.json"
    atomic.write_text(file, stored.record(content))
    if plot is not None:
        atomic.write_bytes(file.with_suffix(".png"), plot)
    return file


def _has_key(file: Path, key: Any, part: str = KEY) -> bool:
    """Return whether a file has this key, a dataclass or a JSON value; a damaged one has none."""
    try:
        written = file.stat()
    except OSError:
        return False  # it is gone
    kind: Any = type(key) if is_dataclass(key) else None
    return bool(_key_in(file, kind, part, written.st_mtime_ns, written.st_size) == key)


@functools.lru_cache(10_000)
def _key_in(file: Path, kind: type[Any] | None, part: str, changed: int, size: int) -> Any:
    """Return the key in a file that changed last at this time; None if it has none of the kind."""
    try:
        table = stored.read(file)[part]
        return table if kind is None else config.build(kind, config.in_todays_names(kind, table))
    except (KeyError, AttributeError, UserError):
        return None  # another kind of key, a damaged file, or settings of another version


def file_for(folder: Path, name: str, key: Any, part: str = KEY) -> Path:
    """Return the file for a result, `NAME.json`, `NAME-2.json`, ...: new, or that with its key."""
    for number in count(1):
        file = folder / (f"{name}.json" if number == 1 else f"{name}-{number}.json")
        is_free = not file.exists() and not file.with_suffix("").exists()
        if is_free or _has_key(file, key, part):
            break
    return file


def begin(folder: Path, name: str, key: Any) -> Path:
    """Return the file with this key; a new one, named after `name`, holds the key alone.

    The caller must hold the folder's lock (`atomic.locked`): two processes could choose one name.
    """
    return find(folder, key) or publish(folder, name, key, {})


def publish(folder: Path, name: str, key: Any, content: dict[str, Any]) -> Path:
    """Write a result and its key, a dataclass, to a file named after `name`; see `begin`."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"
    file = file_for(folder, slug, key)
    stored.write(file, {**content, KEY: config.to_table(key)})
    return file
