"""What callers pass in more than one form: paths, settings, texts."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.settings import config

LONGEST_NAME = 255  # bytes of a file's name

PathName = str | PathLike[str]
Paths = PathName | Sequence[PathName]
Settings = Mapping[str, Any] | Sequence[str]


def paths(value: Paths | None) -> tuple[str, ...]:
    """Return one path or several as texts; none for None."""
    if value is None:
        return ()
    return tuple(fspath(path) for path in ([value] if isinstance(value, str | PathLike) else value))


def require_path(value: object, name: str, *, is_of_texts: bool = False) -> str:
    """Return a path as text.

    Args:
        name: the argument's name, for messages.
        is_of_texts: whether it names texts, where people may give a text itself.

    Raises:
        UserError: it is empty, or is not a path.
    """
    if not isinstance(value, str | PathLike):
        raise UserError(f"{name}: expected a path, got {reprlib.repr(value)}")
    text = fspath(value)
    if not isinstance(text, str):
        raise UserError(f"{name}: expected a path in text, got {text!r}")
    if not text:
        raise UserError(f"{name}: the path is empty; '.' is the current folder")
    hint = "; --data takes paths, texts takes the texts themselves" if is_of_texts else ""
    if "\0" in text or max(map(len, os.fsencode(text).split(b"/"))) > LONGEST_NAME:
        raise UserError(f"{name}: {reprlib.repr(text)} is not a path{hint}")
    if is_of_texts and len(text.split()) > 1 and not _may_exist(text):
        raise UserError(f"{name}: {reprlib.repr(text)}: there is no such file or folder{hint}")
    return text


def path(value: object, name: str) -> Path:
    """Return a path, checked as `require_path` does."""
    return Path(require_path(value, name))


def _may_exist(text: str) -> bool:
    """Return whether a path exists, or may be a pattern that matches some that do."""
    return any(sign in text for sign in "*?[") or os.path.lexists(Path(text).expanduser())


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """Return the name of each folder; its path if another one has that name."""
    names = [folder.absolute().name for folder in folders]
    return [
        name if names.count(name) == 1 else str(folder)
        for name, folder in zip(names, folders, strict=True)
    ]


def assignments(settings: Settings) -> list[str]:
    """Return settings as `--set` takes them: `{"model.layers": 6}` as `["model.layers=6"]`.

    Raises:
        UserError: they are neither a table nor such texts, or a setting is None.
    """
    if isinstance(settings, Mapping):
        if nones := [name for name, value in settings.items() if value is None]:
            raise UserError(f"settings: {nones[0]} is None; leave it out for its default")
        return [f"{name}={config.to_toml(value)}" for name, value in settings.items()]
    is_list = isinstance(settings, Sequence) and not isinstance(settings, str)
    if not is_list or not all(isinstance(item, str) for item in settings):
        raise UserError(
            f'settings: expected a table, such as {{"model.layers": 6}}, got {settings!r}'
        )
    return list(settings)


def texts_file(out: Path) -> Path:
    """Return the file in which texts given in Python are kept."""
    return out.with_name(f"{out.name}.jsonl")


@contextmanager
def saved_texts(texts: Iterable[str] | None, out: Path) -> Iterator[None]:
    """Keep texts given in Python beside what is made of them, as JSON lines, to read them again.

    Args:
        texts: read once, never held together; None if others are read.
        out: the folder to be made of them; if it is not, the file is removed.

    Raises:
        UserError: an item is not a text, there is none, or the file exists or is being written.
    """
    if texts is None:
        yield
        return
    from foreword.tables.given import texts_of

    if isinstance(texts, str):
        raise UserError("texts: expected a list of texts, got one text; data= takes paths")
    checked, are_none = texts_of(texts, "texts"), True
    with atomic.writing(texts_file(out), is_new=True) as lines:
        for text in checked:
            lines.write(stored.to_json({"text": text}) + "\n")
            are_none = False
        if are_none:
            raise UserError("texts is empty")
    try:
        yield
    finally:
        if not out.exists():
            texts_file(out).unlink()
