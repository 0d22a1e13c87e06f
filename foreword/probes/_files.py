"""The files that a probe's setting names."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from foreword.data.text_files import COMPRESSIONS
from foreword.errors import UserError

Item = TypeVar("Item")


def evenly(items: Sequence[Item], limit: int) -> Sequence[Item]:
    """Return at most `limit` items, evenly spaced, since files are sorted; all with 0."""
    if not 0 < limit < len(items):
        return items
    return [items[n * len(items) // limit] for n in range(limit)]


def files_of(source: str, setting: str, formats: Sequence[str]) -> list[Path]:
    """Return the files of a file, a folder or a pattern, sorted; of a folder, those of a format.

    Args:
        source: the path or pattern.
        setting: the setting that names it, for messages.
        formats: suffixes such as `.jsonl`, each of which may be followed by one of a compression.

    Raises:
        UserError: there is no such file.
    """
    path = Path(source).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        ends = tuple(f"{end}{pack}" for end in formats for pack in ("", *COMPRESSIONS))
        files = [file for file in path.iterdir() if file.name.lower().endswith(ends)]
        if not files:
            raise UserError(f"{setting}: {source}: no {' or '.join(formats)} file in it")
    else:
        matches = map(Path, glob.glob(str(path), recursive=True))  # noqa: PTH207
        files = [file for file in matches if file.is_file()]
        if not files:
            raise UserError(f"{setting}: {source}: no such file or folder")
    return sorted(files)
