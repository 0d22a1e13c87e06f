"""Files of results: one for each measurement, never over another."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from foreword.disk import atomic, stored
from foreword.errors import UserError


def save(folder: Path, content: Mapping[str, Any], plot: bytes | None = None) -> Path:
    """Write a result, named by its `name`, with its plot beside it; return the file."""
    file = folder / f"{content['name']}.json"
    atomic.write_text(file, stored.record(content))
    if plot is not None:
        atomic.write_bytes(file.with_suffix(".png"), plot)
    return file


def file_for(folder: Path, content: dict[str, Any]) -> Path:
    """Return the file for a result: a new one, or that of the same measurement.

    Args:
        folder: where results are saved.
        content: the result, by whose `name` the file is named; of others of that name it becomes
            `NAME-2`, ... Results are of the same measurement if their `of` is equal.
    """
    name = content["name"]
    for number in count(1):
        content["name"] = name if number == 1 else f"{name}-{number}"
        file = folder / f"{content['name']}.json"
        if not file.exists() or _is_of(file, content["of"]):
            break
    return file


def _is_of(file: Path, measured: Any) -> bool:
    """Return whether a saved result is of this measurement; a damaged one is not."""
    try:
        return bool(stored.read(file).get("of") == measured)
    except UserError:
        return False
