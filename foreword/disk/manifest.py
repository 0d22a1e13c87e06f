"""Manifests: the names, sizes and checksums of a folder's files, by which it is verified.

    {"foreword_checkpoint": 1, "files": {"state.json": {"bytes": 218, "blake2b": "..."}, ...}}

The first key is the kind of the folder, its value the version. A manifest is written last.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from foreword.disk import atomic, stored
from foreword.errors import DamagedError, UserError

FILE = "manifest.json"


def write(
    folder: Path,
    kind: str,
    version: int,
    names: Collection[str] = (),
    known: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write the manifest of a folder.

    Args:
        folder: the folder, complete.
        kind: its kind: "checkpoint", "tuned", "tokenizer".
        version: the version of its format.
        names: the files to list; all by default.
        known: size and checksum of files that were computed as they were written, by name.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    listed = [folder / name for name in names] or [
        file for file in sorted(folder.rglob("*")) if file.is_file() and file != folder / FILE
    ]
    known, files = known or {}, {}
    for file in listed:
        name = file.relative_to(folder).as_posix()
        size = file.stat().st_size
        files[name] = known.get(name) or {"bytes": size, "blake2b": atomic.checksum(file)}
    stored.write(folder / FILE, {_key(kind): version, "files": files})


def verify(
    folder: Path,
    kind: str,
    version: int,
    required: Collection[str],
    unread: Collection[str] = (),
    *,
    is_read: bool = True,
) -> None:
    """Read the manifest of a folder and check every file against it.

    Args:
        folder: the folder.
        kind: the expected kind.
        version: the expected version.
        required: files that it must list.
        unread: files that will not be read now, of which only the size is checked.
        is_read: whether any file will be read now.

    Raises:
        DamagedError: it is damaged.
        UserError: it is of another version.
    """
    files = _files(folder, kind, version)
    if lacking := [name for name in required if name not in files]:
        raise DamagedError(f"{folder}: damaged: its manifest does not name {lacking[0]}")
    for name, expected in files.items():
        _verify_file(folder, name, expected, is_read=is_read and name not in unread)


def verify_file(folder: Path, name: str, kind: str, version: int) -> None:
    """Check one file of a folder against its manifest, if that lists it.

    Raises:
        DamagedError: it is damaged.
    """
    files = _read_once(folder, kind, version, (folder / FILE).stat().st_mtime_ns)
    if name in files:
        _verify_file(folder, name, files[name])


def _verify_file(
    folder: Path, name: str, expected: Mapping[str, Any], *, is_read: bool = True
) -> None:
    """Check a file against its entry."""
    file = folder / name
    if not file.is_file() or file.stat().st_size != expected["bytes"]:
        raise DamagedError(f"{folder}: damaged: {name} is missing or cut short")
    if is_read and atomic.checksum(file) != expected["blake2b"]:
        raise DamagedError(f"{folder}: damaged: {name} does not match its checksum")


@functools.lru_cache(1)
def _read_once(folder: Path, kind: str, version: int, changed: int) -> Mapping[str, Any]:
    """Return the files of a manifest that changed last at this time."""
    return _files(folder, kind, version)


def is_of(folder: Path, kind: str) -> bool:
    """Return whether a folder has a manifest of this kind, or a damaged one.

    Other programs' files may have the name `manifest.json` too; these do not count.

    Args:
        folder: the folder.
        kind: as in `write`.
    """
    if not (folder / FILE).exists():
        return False
    try:
        return _key(kind) in stored.read(folder / FILE)
    except DamagedError:
        return True


def _files(folder: Path, kind: str, version: int) -> Mapping[str, Mapping[str, Any]]:
    """Return the size and checksum of each file in the manifest, by name."""
    unreadable = DamagedError(f"{folder}: damaged: its manifest cannot be read")
    try:
        manifest = stored.read(folder / FILE)
    except DamagedError as error:
        raise unreadable from error
    written, files = manifest.get(_key(kind)), manifest.get("files")
    if written != version and stored.CHECKSUM in manifest and isinstance(written, int):
        fix = "make it again with this one" if written < version else "use the one that wrote it"
        raise UserError(
            f"{folder}: a {kind} of version {written}; this Foreword reads version {version}: {fix}"
        )
    if written != version or not isinstance(files, dict):
        raise unreadable
    for name, entry in files.items():
        if not isinstance(entry, dict) or {"bytes", "blake2b"} - entry.keys() or "\0" in name:
            raise unreadable
    return files


def _key(kind: str) -> str:
    return f"foreword_{kind}"
