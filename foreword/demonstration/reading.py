"""Reading packages: their docstrings as prose, each paragraph once."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field

from foreword.demonstration import installed
from foreword.demonstration.installed import Package, text_hash
from foreword.demonstration.prose import paragraphs
from foreword.errors import UserError

TEST_SHARE = 0.25  # of the source files, by a hash of their paths
MIN_FILES_FOR_PROCESSES = 200  # below, starting processes takes longer than the work

OnProgress = Callable[[int, int], None]  # packages read, all packages


@dataclass(frozen=True)
class Docstring:
    """A docstring as prose: its paragraphs, its package, and whether its file is for the test."""

    paragraphs: tuple[str, ...]
    package: str
    is_test: bool

    @property
    def whole(self) -> str:
        """The whole text, one paragraph per line."""
        return "\n".join(self.paragraphs)


@dataclass
class ExtractedProse:
    """The prose extracted from packages, with counts.

    Attributes:
        texts: docstrings with at least one paragraph each; no paragraph occurs twice.
        files: source files with text in triple quotes.
        unread: source files that cannot be opened or parsed by this version of Python.
        docstrings: docstrings in the files.
        repeated: paragraphs left out as duplicates.
    """

    texts: list[Docstring] = field(default_factory=list)
    files: int = 0
    unread: int = 0
    docstrings: int = 0
    repeated: int = 0


def read(
    packages: Sequence[Package], max_characters: int, on_progress: OnProgress | None = None
) -> ExtractedProse:
    """Read packages, about `max_characters` characters of prose of each at most.

    Files are read in the package's order until its prose suffices, so that no package dominates
    and no time is spent on text that is not used.
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
    """Yield the prose of each package in order; of many files by processes, as parsing locks."""
    if sum(len(package.files) for package in packages) < MIN_FILES_FOR_PROCESSES:
        yield from (read_package(package, max_characters) for package in packages)
        return
    # A spawned process is safe whatever threads this one has.
    spawn = multiprocessing.get_context("spawn")
    # An interrupt reaches all processes of a terminal; only this one handles it.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 8), spawn, signal.signal, ignore) as pool:
        try:
            yield from pool.map(read_package, packages, [max_characters] * len(packages))
        except BrokenProcessPool:
            raise UserError("a worker process died, probably out of memory") from None


def read_package(package: Package, max_characters: int) -> ExtractedProse:
    """Read one package's files until its prose has `max_characters` characters."""
    prose, seen, size = ExtractedProse(), set[str](), 0
    for path in package.files:
        if size >= max_characters:
            break
        # The docstrings of a file.
        try:
            source = path.read_bytes()
            if len(source) > installed.LARGEST or not (b'"""' in source or b"'''" in source):
                continue
            docstrings = installed.docstrings(source)
        except (OSError, SyntaxError, ValueError, RecursionError):
            prose.unread += 1
            continue
        prose.files += 1
        prose.docstrings += len(docstrings)
        # Their paragraphs that are new.
        is_test = int.from_bytes(text_hash(package.key(path))) < TEST_SHARE * 2**64
        for docstring in docstrings:
            sentences = paragraphs(docstring)
            new = tuple(dict.fromkeys(p for p in sentences if p not in seen))
            seen.update(new)
            prose.repeated += len(sentences) - len(new)
            if new:
                prose.texts.append(Docstring(new, package.name, is_test))
                size += sum(map(len, new))
    return prose
