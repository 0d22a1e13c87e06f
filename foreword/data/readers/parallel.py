"""Parallel text: two files whose lines are translations of each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar

from foreword.data.readers._contract import Reader
from foreword.data.text_files import ReadCounts, ReadSettings, TextFile
from foreword.disk.compressed import COMPRESSIONS
from foreword.errors import UserError
from foreword.types import Document


@dataclass(frozen=True)
class Parallel(Reader):
    """Two plain files side by side, `train.en` and `train.de`; each may be compressed.

    Their names end in the settings' `field` and `target`. A pair is a document of two lines; one
    with an empty side is counted and skipped.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()  # those that the settings name
    has_sides: ClassVar[bool] = True

    def read(self, source: TextFile) -> Iterator[Document]:
        """Yield the pairs of a file and its counterpart.

        Raises:
            UserError: a line is not UTF-8, or one file has more lines than the other.
        """
        path, other = find_sides(source.path, source.settings)
        counts = ReadCounts()
        beside = TextFile(other, source.settings, counts)
        sides = (file.lines(are_parallel=True) for file in (source, beside))
        for number, pair in enumerate(zip_longest(*sides), 1):
            line, counterpart = pair
            if line is None or counterpart is None:
                longer, shorter = (path, other) if counterpart is None else (other, path)
                raise UserError(
                    f"{longer}:{number}: there is no line {number:,} in {shorter}, which ends "
                    "before; both sides must have the same number of lines: find the missing one"
                )
            text = source.decode(line[2], f"{path}:{number}", line[1])
            yield from source.pair(
                text, beside.decode(counterpart[2], f"{other}:{number}", counterpart[1]), number
            )
        source.counts.replaced_bytes += counts.replaced_bytes


def find_sides(file: Path, settings: ReadSettings) -> tuple[Path, Path]:
    """Return both files of a pair, source first, given either.

    Raises:
        UserError: the other one is missing.
    """
    name = file.name
    if file.suffix.lower() in COMPRESSIONS:
        name = Path(name).stem
    stem, end = name.rsplit(".", 1)
    is_source = end.lower() == settings.field.lower()
    counterpart = f"{stem}.{settings.target if is_source else settings.field}"
    for compression in ("", *COMPRESSIONS):
        other = file.with_name(counterpart + compression)
        if other.is_file():
            return (file, other) if is_source else (other, file)
    raise UserError(
        f"{file}: there is no {counterpart} beside it (nor with {' or '.join(COMPRESSIONS)})"
    )
