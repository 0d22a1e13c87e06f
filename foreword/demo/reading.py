"""Packages read: their docstrings as prose, each text once."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field

from foreword.demo import installed
from foreword.demo.installed import Package, text_hash
from foreword.demo.prose import paragraphs
from foreword.errors import UserError

TEST_SHARE = 0.25  # of the source files, by a hash of their paths
MIN_FILES_FOR_PROCESSES = (
    200  # source files below which starting processes takes longer than the work
)

OnProgress = Callable[[int, int], None]  # packages read, packages in all


@dataclass(frozen=True)
class Docstring:
    """A docstring as prose: its paragraphs, its package, and whether its file is for the test."""

    paragraphs: tuple[str, ...]
    package: str
    is_test: bool

    @property
    def whole(self) -> str:
        """All of it, a paragraph a line."""
        return "\n".join(self.paragraphs)


@dataclass
class ExtractedProse:
    """What was read.

    Attributes:
        texts: with at least one paragraph each, and no paragraph twice.
        files: source files with text in triple quotes.
        unread: source files that are no Python of this version, or cannot be opened.
        docstrings: in these files.
        repeated: paragraphs left out, since they stand elsewhere too.
    """

    texts: list[Docstring] = field(default_factory=list)
    files: int = 0
    unread: int = 0
    docstrings: int = 0
    repeated: int = 0


def read(
    packages: Sequence[Package], max_characters: int, on_progress: OnProgress | None = None
) -> ExtractedProse:
    """Reads packages, at most about `max_characters` characters of prose of each.

    Files are taken in the packages' order until the prose is enough, so that no package drowns
    the others and nobody waits for what is not used.
    """
    seen: set[str] = set()
    whole = ExtractedProse()
    for n, part in enumerate(_read_each(packages, max_characters)):
        whole.files += part.files
        whole.unread += part.unread
        whole.docstrings += part.docstrings
        whole.repeated += part.repeated
        for text in part.texts:
            new = tuple(p for p in text.paragraphs if p not in seen)
            seen.update(new)
            whole.repeated += len(text.paragraphs) - len(new)
            if new:
                whole.texts.append(Docstring(new, text.package, text.is_test))
        if on_progress is not None:
            on_progress(n + 1, len(packages))
    return whole


def _read_each(packages: Sequence[Package], max_characters: int) -> Iterable[ExtractedProse]:
    """Each package's reading in order, several at once; parsing holds Python's one lock."""
    if sum(len(package.files) for package in packages) < MIN_FILES_FOR_PROCESSES:
        yield from (read_package(package, max_characters) for package in packages)
        return
    # Started afresh, a process is safe whatever threads this one has.
    fresh = multiprocessing.get_context("spawn")
    # An interrupt reaches all processes of a terminal; this one alone decides what it means.
    quiet = (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 8), fresh, signal.signal, quiet) as pool:
        try:
            yield from pool.map(read_package, packages, [max_characters] * len(packages))
        except BrokenProcessPool:
            raise UserError("a worker process died, probably out of memory") from None


def read_package(package: Package, max_characters: int) -> ExtractedProse:
    """Reads one package's files until its prose is `max_characters` characters."""
    found, seen, size = ExtractedProse(), set[str](), 0
    for path in package.files:
        if size >= max_characters:
            break
        try:
            source = path.read_bytes()
            if len(source) > installed.LARGEST or not (b'"""' in source or b"'''" in source):
                continue
            docstrings = installed.docstrings(source)
        except (OSError, SyntaxError, ValueError, RecursionError):
            found.unread += 1
            continue
        found.files += 1
        found.docstrings += len(docstrings)
        is_test = int.from_bytes(text_hash(package.key(path))) < TEST_SHARE * 2**64
        for docstring in docstrings:
            kept = paragraphs(docstring)
            new = tuple(dict.fromkeys(p for p in kept if p not in seen))
            seen.update(new)
            found.repeated += len(kept) - len(new)
            if new:
                found.texts.append(Docstring(new, package.name, is_test))
                size += sum(map(len, new))
    return found
