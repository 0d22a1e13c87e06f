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
from foreword.demo.installed import Package, draw
from foreword.demo.prose import paragraphs
from foreword.errors import UserError

TEST_SHARE = 0.25  # of the source files, by a hash of their paths
FEW = 200  # source files below which starting processes takes longer than the work

Watch = Callable[[int, int], None]  # packages read, packages in all


@dataclass(frozen=True)
class Text:
    """A docstring as prose: its paragraphs, its package, and whether its file is for the test."""

    paragraphs: tuple[str, ...]
    package: str
    is_test: bool

    @property
    def whole(self) -> str:
        """All of it, a paragraph a line."""
        return "\n".join(self.paragraphs)


@dataclass
class Reading:
    """What was read.

    Attributes:
        texts: with at least one paragraph each, and no paragraph twice.
        files: source files with text in triple quotes.
        unread: source files that are no Python of this version, or cannot be opened.
        docstrings: in these files.
        repeated: paragraphs left out, since they stand elsewhere too.
    """

    texts: list[Text] = field(default_factory=list)
    files: int = 0
    unread: int = 0
    docstrings: int = 0
    repeated: int = 0


def read(packages: Sequence[Package], most: int, watch: Watch | None = None) -> Reading:
    """Reads packages, at most about `most` characters of prose of each.

    Files are taken in the packages' order until the prose is enough, so that no package drowns
    the others and nobody waits for what is not used.
    """
    seen: set[str] = set()
    whole = Reading()
    for n, part in enumerate(_each(packages, most)):
        whole.files += part.files
        whole.unread += part.unread
        whole.docstrings += part.docstrings
        whole.repeated += part.repeated
        for text in part.texts:
            new = tuple(p for p in text.paragraphs if p not in seen)
            seen.update(new)
            whole.repeated += len(text.paragraphs) - len(new)
            if new:
                whole.texts.append(Text(new, text.package, text.is_test))
        if watch is not None:
            watch(n + 1, len(packages))
    return whole


def _each(packages: Sequence[Package], most: int) -> Iterable[Reading]:
    """Each package's reading in order, several at once; parsing holds Python's one lock."""
    if sum(len(package.files) for package in packages) < FEW:
        yield from (read_package(package, most) for package in packages)
        return
    # Started afresh, a process is safe whatever threads this one has.
    fresh = multiprocessing.get_context("spawn")
    # An interrupt reaches all processes of a terminal; this one alone decides what it means.
    quiet = (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 8), fresh, signal.signal, quiet) as pool:
        try:
            yield from pool.map(read_package, packages, [most] * len(packages))
        except BrokenProcessPool:
            raise UserError("a worker process died, probably out of memory") from None


def read_package(package: Package, most: int) -> Reading:
    """Reads one package's files until its prose is `most` characters."""
    found, seen, size = Reading(), set[str](), 0
    for path in package.files:
        if size >= most:
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
        is_test = int.from_bytes(draw(package.key(path))) < TEST_SHARE * 2**64
        for docstring in docstrings:
            kept = paragraphs(docstring)
            new = tuple(dict.fromkeys(p for p in kept if p not in seen))
            seen.update(new)
            found.repeated += len(kept) - len(new)
            if new:
                found.texts.append(Text(new, package.name, is_test))
                size += sum(map(len, new))
    return found
