"""Parallel text: two files, of which each line of one translates a line of the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar

from foreword.data.text_files import COMPRESSIONS, ReadCounts, ReadSettings, TextFile
from foreword.errors import UserError
from foreword.types import Document


@dataclass(frozen=True)
class Parallel:
    """Two plain files side by side, `train.en` and `train.de`; each may be compressed.

    Their names end in the settings' `field` and `target`. A pair is a document of two lines; one
    of which a side has no text is counted and passed over.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()  # those that the settings name
    has_sides: ClassVar[bool] = True

    def read(self, source: TextFile) -> Iterator[Document]:
        """The pairs of a file and the one beside it.

        Raises:
            UserError: a line is not UTF-8, or one file has more lines than the other.
        """
        path, other = both(source.path, source.settings)
        counts = ReadCounts()
        beside = TextFile(other, source.settings, counts)
        for number, pair in enumerate(zip_longest(source.lines(), beside.lines()), 1):
            one, two = pair
            if one is None or two is None:
                longer, shorter = (path, other) if two is None else (other, path)
                raise UserError(
                    f"{longer}:{number}: there is no line {number:,} in {shorter}, which ends "
                    "before; the two sides must have as many lines: find the line that one lacks"
                )
            text = source.decode(one[2], f"{path}:{number}", one[1])
            yield from source.pair(text, beside.decode(two[2], f"{other}:{number}", two[1]), number)
        source.counts.replaced_bytes += counts.replaced_bytes


def both(file: Path, settings: ReadSettings) -> tuple[Path, Path]:
    """The two sides that a file, either of them, belongs to.

    Raises:
        UserError: the other one is not there.
    """
    name = file.name
    if file.suffix.lower() in COMPRESSIONS:
        name = Path(name).stem
    stem, end = name.rsplit(".", 1)
    is_source = end.lower() == settings.field.lower()
    wanted = f"{stem}.{settings.target if is_source else settings.field}"
    for found in (file.with_name(wanted + compression) for compression in ("", *COMPRESSIONS)):
        if found.is_file():
            return (file, found) if is_source else (found, file)
    raise UserError(
        f"{file}: there is no {wanted} beside it (nor with {' or '.join(COMPRESSIONS)})"
    )
