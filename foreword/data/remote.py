"""Files at URLs: s3://bucket/name, and any other that `fsspec` and its packages read.

Credentials in a URL are masked in all that is kept of it; `storage_of` alone knows them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import PurePosixPath
from typing import Any

from foreword.disk import credentials
from foreword.errors import UserError

URL = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]+://")
BLOCK = 1 << 20  # bytes


@dataclass(frozen=True)
class RemoteState:
    """The state of a file, known without reading it and named as `os.stat` names it.

    Attributes:
        st_size: its bytes.
        st_mtime_ns: a number that changes when the file does.
    """

    st_size: int
    st_mtime_ns: int


class RemoteFile(PurePosixPath):
    """A file at a URL without its credentials, which readers use as they use a `Path`."""

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    @property
    def name(self) -> str:
        """The file's name, without a query."""
        return split_query(str(self))[0].rpartition("/")[2]

    def open(self, mode: str = "rb") -> BufferedReader:
        """Open it for reading bytes.

        Raises:
            OSError: it cannot be read.
        """
        with url_errors(str(self)):
            system, path = storage_of(str(self))
            return BufferedReader(system.open(path, mode), BLOCK)

    def stat(self) -> RemoteState:
        """Return its size and what changes with it."""
        with url_errors(str(self)):
            system, path = storage_of(str(self))
            facts = system.info(path)
        version = [str(facts.get(name)) for name in ("ETag", "LastModified", "mtime", "created")]
        digest = hashlib.blake2b("".join(version).encode(), digest_size=6)
        return RemoteState(int(facts["size"] or 0), int(digest.hexdigest(), 16))

    def exists(self) -> bool:
        """Return True: it was found."""
        return True


def is_url(source: object) -> bool:
    """Return whether a source of text is a URL."""
    return isinstance(source, RemoteFile) or bool(URL.match(str(source)))


def find_remote(url: str) -> tuple[list[RemoteFile], bool]:
    """Return the files at a URL, a file, folder or pattern, and whether it names them one by one.

    Raises:
        UserError: there is none, it cannot be reached, or a package for such URLs is missing.
    """
    with url_errors(url):
        system, path = storage_of(url)
        is_pattern = any(mark in split_query(path)[0] for mark in "*?[")
        is_file = not is_pattern and system.isfile(path)
        names = system.glob(path) if is_pattern else [path] if is_file else system.find(path)
        urls = map(system.unstrip_protocol, names)
        files = sorted(RemoteFile(credentials.masked(one)) for one in urls)
        if not files and not is_pattern:
            _require_reachable(system, path)
    if not files:
        raise UserError(f"{url}: there is no such file or folder")
    return files, is_pattern or is_file


def _require_reachable(system: Any, path: str) -> None:
    """Check that a path is empty or missing, and not a server that does not answer."""
    try:
        system.info(path)
    except FileNotFoundError as error:  # as which a file system of HTTP raises any error
        if error.__cause__ is not None and not isinstance(error.__cause__, FileNotFoundError):
            raise error.__cause__ from None


def split_query(url: str) -> tuple[str, str]:
    """Return a URL without its query, and the query with its question mark, which only HTTP has."""
    place, mark, query = url.partition("?") if url.lower().startswith("http") else (url, "", "")
    return place, mark + query


def join(url: str, name: str) -> str:
    """Return the URL of a file in the folder at a URL."""
    place, query = split_query(url)
    return f"{place.rstrip('/')}/{name}{query}"


def storage_of(url: str) -> Any:
    """Return the file system of a URL, and the path in it.

    Credentials in the URL are remembered; those of a masked one must have been given.

    Raises:
        UserError: they were not.
    """
    import fsspec

    credentials.remember(url)
    whole = credentials.with_credentials(url)
    if credentials.MASK in whole:
        raise UserError(
            f"{url}: user names, passwords and signatures are not kept; give them again, in "
            f"{credentials.VARIABLE}='URL' before the command"
        )
    return fsspec.core.url_to_fs(whole)


@contextmanager
def url_errors(url: str) -> Iterator[None]:
    """Turn the errors of many packages into a UserError of one line."""
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except ImportError as error:
        extra = "; pip install 'foreword[s3]'" if url.startswith(("s3", "http")) else ""
        raise UserError(f"{url}: {error}{extra}") from error
    except Exception as error:  # of the services' own clients, which share no class
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{url}: cannot be read: {reason}") from None  # it may name credentials
