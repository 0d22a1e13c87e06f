"""The contract of readers, the kinds in `data/readers/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from foreword.data.text_files import TextFile
from foreword.types import Document


class Reader(ABC):
    """A form of text file; it is built without arguments, and chosen by a file's suffix.

    Attributes:
        suffixes: suffixes of the files that it reads, in lower case with their dot; that of a
            compression (`.gz`, `.zst`) does not count. No two readers share one.
        has_sides: whether it reads parallel text: two sides of each pair, by the settings' `field`
            and `target`.
        is_divisible: whether cleaning may let several tasks read a file, each of which drops the
            documents of the others; false if that takes longer than it saves.
    """

    suffixes: ClassVar[tuple[str, ...]]
    has_sides: ClassVar[bool] = False
    is_divisible: ClassVar[bool] = True

    @abstractmethod
    def read(self, source: TextFile) -> Iterator[Document]:
        """Yield the documents of a file one by one, in constant memory.

        `source.document` makes them, and counts and skips those without text; `source.lines` and
        `source.decode` treat bytes that are not UTF-8 as the settings say.

        Raises:
            UserError: the file is not of this form, or has no such field; the message names the
                file and the line.
        """
