"""Files to documents: find the files, choose readers by name, stream the documents."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from foreword.data.readers._contract import Reader
from foreword.data.readers.parallel import Parallel, find_sides
from foreword.data.remote import RemoteFile, find_remote, is_url
from foreword.data.text_files import CLEANED, ReadCounts, ReadSettings, TextFile
from foreword.disk import manifest
from foreword.disk.compressed import COMPRESSIONS
from foreword.disk.credentials import masked
from foreword.errors import DamagedError, UserError
from foreword.settings import kinds
from foreword.types import Document

__all__ = ["ReadCounts", "ReadSettings", "find_files", "read_documents"]


_TABLES = {".csv", ".tsv", ".xlsx"}
_PAGES = {".pdf", ".doc", ".docx", ".odt", ".epub", ".html", ".htm", ".xml", ".rtf"}


def find_files(
    inputs: Sequence[str | Path],
    counts: ReadCounts | None = None,
    settings: ReadSettings | None = None,
) -> list[Path]:
    """Return the text files of `inputs`: files, folders (recursively) and patterns (`*.txt`).

    Args:
        inputs: files, folders and patterns; a file named twice is read once. Of two files of
            parallel text, either names both.
        counts: counts the files that no reader reads.
        settings: how files become documents.

    Returns:
        The files, sorted by path.

    Raises:
        UserError: there is no such file, no reader reads it, or there is no text file at all.
    """
    counts = counts if counts is not None else ReadCounts()
    settings = settings or ReadSettings()
    readers = reader_kinds(settings)
    text_files: set[Path] = set()
    if not inputs:
        raise UserError("no text was given; name files or folders")
    shown = [masked(source) for source in {str(source) for source in inputs}]
    if alike := [source for source in shown if shown.count(source) > 1]:
        raise UserError(f"{alike[0]}: two URLs that differ in their credentials alone")
    for source in inputs:
        # Sort out the files of each input: text, parallel text, or without a reader.
        before = len(text_files)
        if _is_run(Path(source)):
            raise UserError(f"{source}: is a run, not text; name the text itself")
        files, is_named = _expand(source)
        if not is_named and (cleaned := cleaned_above(Path(source) / "part")) is not None:
            verify_cleaned(cleaned)
        for file in files:
            if not file.exists():
                counts.skip("broken link")
            elif isinstance(readers.get(_suffix(file)), Parallel):
                text_files.update(find_sides(file, settings))
            elif _suffix(file) in readers:
                if file in text_files:
                    counts.skip("named twice")
                text_files.add(file)
            elif is_named:
                hint = " of parallel text (read.target is set)" if settings.target else ""
                raise UserError(
                    f"{file}: no reader for such files{hint}; there are {_words(readers)}"
                    f"{_conversion_hint([file])}"
                )
            else:
                counts.skip(_suffix(file) or file.name)
        # An input without text is a mistake.
        is_text = (_suffix(file) in readers and file.exists() for file in files)
        if len(text_files) == before and not any(is_text):
            if (Path(source) / "prepared.json").is_file():
                raise UserError(
                    f"{source}: holds token shards, not text; 'foreword pretrain' accepts such a "
                    "folder as its only --data"
                )
            raise UserError(
                f"{source}: no text file in it; there are readers for {_words(readers)}"
                f"{_conversion_hint(files)}"
            )
    return sorted(text_files)


def read_documents(
    inputs: Sequence[str | Path],
    settings: ReadSettings | None = None,
    counts: ReadCounts | None = None,
) -> Iterator[Document]:
    """Yield the documents of `inputs` one by one, in constant memory.

    Args:
        inputs: files, folders and patterns.
        settings: how files become documents.
        counts: updated while reading.

    Raises:
        UserError: a file is missing or cannot be read; the message says which, where, and how to
            fix it.
    """
    settings = settings or ReadSettings()
    counts = counts if counts is not None else ReadCounts()
    files = find_files(inputs, counts, settings)
    for path in files:
        yield from read_file(path, settings, counts)
    if not counts.documents:
        where = files[0] if len(files) == 1 else f"{len(files)} files, {files[0]} first"
        raise UserError(f"{where}: contains no text")


def read_file(path: Path, settings: ReadSettings, counts: ReadCounts) -> Iterator[Document]:
    """Yield the documents of one file that `find_files` found.

    Args:
        path: the file.
        settings: how it becomes documents.
        counts: updated while reading.

    Raises:
        UserError: the file is missing or cannot be read.
    """
    reader = reader_of(path, settings)
    try:
        size = path.stat().st_size
        before = counts.bytes_read
        if (cleaned := cleaned_above(path)) is not None:
            verify_cleaned(cleaned, path.name)
        is_beside = isinstance(reader, Parallel)
        if is_beside and path == find_sides(path, settings)[1]:
            pass  # it is read with the other
        elif size or is_beside:
            yield from reader.read(TextFile(path, settings, counts))
        else:
            counts.empty_files += 1
        counts.bytes_read = before + size
        counts.files += 1
    except OSError as error:
        # Errors of the system have a text; those of a decompressor have none.
        reason = error.strerror or f"not readable ({error}); fetch or compress it again"
        raise UserError(f"{path}: {reason}") from None


def verify_cleaned(folder: Path, name: str = "") -> None:
    """Check a file of cleaned text as it is read, or without a name the sizes of all.

    Raises:
        UserError: it is damaged.
    """
    try:
        if name:
            manifest.verify_file(folder, f"texts/{name}", *CLEANED)
        else:
            manifest.verify(folder, *CLEANED, (), is_read=False)
    except DamagedError as error:
        raise UserError(f"{error}; delete {folder} and clean again") from error


def cleaned_above(file: Path) -> Path | None:
    """Return the folder that `foreword clean` wrote a file of text into; None for other files."""
    if is_url(file) or file.absolute().parent.name != "texts":
        return None
    folder = file.absolute().parent.parent
    is_cleaned = (folder / "clean.json").is_file() and (folder / manifest.FILE).is_file()
    return folder if is_cleaned else None


def canonical_name(file: Path) -> str:
    """Return the same name for the same file, however it was named."""
    return str(file) if is_url(file) else str(file.resolve())


def reader_of(path: Path, settings: ReadSettings) -> Reader:
    """Return the reader of a file that `find_files` found."""
    return reader_kinds(settings)[_suffix(path)]


def is_text(path: Path | RemoteFile, settings: ReadSettings) -> bool:
    """Return whether a file's name is that of a kind of text."""
    return _suffix(path) in reader_kinds(settings)


def reader_kinds(settings: ReadSettings) -> dict[str, Reader]:
    """Return the reader for each suffix (`".txt"`): the kinds in `data/readers/`.

    For parallel text, only those that read two sides.
    """
    names = kinds.names("data/readers")
    loaded: list[Reader] = [kinds.load("data/readers", name)() for name in names]
    if not settings.target:
        return {suffix: reader for reader in loaded for suffix in reader.suffixes}
    sides = (settings.field, settings.target)
    of_files: dict[str, Reader] = {f".{side.lower()}": Parallel() for side in sides}
    of_pairs = [reader for reader in loaded if reader.has_sides]
    return of_files | {suffix: reader for reader in of_pairs for suffix in reader.suffixes}


def _suffix(file: Path | RemoteFile) -> str:
    """Return a file's suffix in lower case, that of a compression aside."""
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _expand(source: str | Path) -> tuple[list[Path], bool]:
    """Return the files of one input, and whether it names them one by one."""
    if is_url(source):
        files, are_named = find_remote(str(source))
        return cast(list[Path], files), are_named
    path = Path(source).expanduser()
    if path.is_dir():
        paths = sorted(path.rglob("*"))
        return [file for file in paths if file.is_file() or not file.exists()], False
    if path.exists():
        return [path], True
    if path.is_symlink():
        raise UserError(f"{source}: is a broken or circular link")
    matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207
    if not matches:
        raise UserError(f"{source}: there is no such file or folder")
    return [file for match in matches for file in _expand(match)[0]], False


def _is_run(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("run.json", "recipe.toml"))


def _conversion_hint(files: Sequence[Path]) -> str:
    """Return how to convert files that no reader reads; "" if unknown."""
    suffixes = {_suffix(file) for file in files}
    if suffixes & _TABLES:
        return "; a table as .jsonl or .parquet is read by the column that --field names"
    if suffixes & _PAGES:
        return "; extract their text to .txt first"
    return ""


def _words(readers: dict[str, Reader]) -> str:
    return f"{', '.join(sorted(readers))}, each also {', '.join(COMPRESSIONS)}"
