"""Manifests: the names, sizes and checksums of a folder's files, by which it is verified.

    {"foreword_checkpoint": 1, "files": {"state.json": {"bytes": 218, "blake2b": "..."}, ...}}

The first key says what the folder is and of which version. A manifest is written last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from foreword import atomic, stored
from foreword.errors import DamagedError, UserError

FILE = "manifest.json"


def write(folder: Path, kind: str, version: int, names: Collection[str] = ()) -> None:
    """Write the manifest of a folder.

    Args:
        folder: with all its files.
        kind: what it is: "checkpoint", "tuned", "tokenizer".
        version: of its format.
        names: of the files; all there are by default.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    found = [folder / name for name in names] or [
        file for file in sorted(folder.rglob("*")) if file.is_file() and file != folder / FILE
    ]
    files = {
        file.relative_to(folder).as_posix(): {
            "bytes": file.stat().st_size,
            "blake2b": atomic.checksum(file),
        }
        for file in found
    }
    stored.write(folder / FILE, {_key(kind): version, "files": files})


def verify(
    folder: Path,
    kind: str,
    version: int,
    needed: Collection[str],
    unread: Collection[str] = (),
) -> None:
    """Read the manifest of a folder and check every file against it.

    Args:
        folder: to verify.
        kind: what it must be.
        version: that is read here.
        needed: files that must be among those it names.
        unread: files that will not be read now: of these the size alone is checked.

    Raises:
        DamagedError: it is damaged.
        UserError: it is of another version.
    """
    files = _files(folder, kind, version)
    if lacking := [name for name in needed if name not in files]:
        raise DamagedError(f"{folder}: damaged: its manifest does not name {lacking[0]}")
    for name, wanted in files.items():
        file = folder / name
        if not file.is_file() or file.stat().st_size != wanted["bytes"]:
            raise DamagedError(f"{folder}: damaged: {name} is missing or cut short")
        if name not in unread and atomic.checksum(file) != wanted["blake2b"]:
            raise DamagedError(f"{folder}: damaged: {name} does not match its checksum")


def is_of(folder: Path, kind: str) -> bool:
    """Whether there is a manifest, of such a folder or damaged; others' files go by that name too.

    Args:
        folder: to look into.
        kind: as in `write`.
    """
    if not (folder / FILE).exists():
        return False
    try:
        return _key(kind) in stored.read(folder / FILE)
    except DamagedError:
        return True


def _files(folder: Path, kind: str, version: int) -> Mapping[str, Mapping[str, Any]]:
    """What the manifest says of each file."""
    unreadable = DamagedError(f"{folder}: damaged: its manifest cannot be read")
    try:
        manifest = stored.read(folder / FILE)
    except DamagedError as error:
        raise unreadable from error
    found, files = manifest.get(_key(kind)), manifest.get("files")
    if found != version and stored.CHECKSUM in manifest and isinstance(found, int):
        raise UserError(
            f"{folder}: a {kind} of version {found}; this Foreword reads version {version}"
        )
    if found != version or not isinstance(files, dict):
        raise unreadable
    for name, said in files.items():
        if not isinstance(said, dict) or {"bytes", "blake2b"} - said.keys() or "\0" in name:
            raise unreadable
    return files


def _key(kind: str) -> str:
    return f"foreword_{kind}"
