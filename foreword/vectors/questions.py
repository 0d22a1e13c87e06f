"""Test sets of word vectors: analogies by section, and pairs of words rated by people."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from foreword.disk import atomic
from foreword.errors import UserError

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class AnalogySection:
    """Analogies of one relation.

    Attributes:
        name: the name in the file; names of grammatical relations begin with `gram`.
        questions: the words a, b, c, d of each: a is to b as c is to d.
    """

    name: str
    questions: tuple[tuple[str, ...], ...]

    @property
    def is_grammar(self) -> bool:
        """Whether the relation is one of word forms, not of meaning."""
        return self.name.startswith("gram")


@dataclass(frozen=True)
class RatedPair:
    """Two words, and how similar people find them."""

    words: tuple[str, str]
    rating: float


def read_analogies(path: str | Path | None) -> list[AnalogySection]:
    """Return the sections of a file like `questions-words.txt`; by default a small one of ours.

    Raises:
        UserError: it cannot be read, or a line does not have four words.
    """
    path = Path(path or DATA / "analogies.txt")
    sections: list[tuple[str, list[tuple[str, ...]]]] = []
    for number, line in _lines(path):
        if line.startswith(":"):
            sections.append((line[1:].strip(), []))
            continue
        words = tuple(line.split())
        if len(words) != 4:
            raise UserError(f"{path}:{number}: expected four words, got {line!r}")
        if not sections:
            sections.append(("all", []))
        sections[-1][1].append(words)
    if not any(questions for _, questions in sections):
        raise UserError(f"{path}: the file has no analogies")
    return [AnalogySection(name, tuple(questions)) for name, questions in sections if questions]


def read_pairs(path: str | Path | None) -> list[RatedPair]:
    """Return the pairs of a file like `wordsim353.txt`; by default a small one of ours.

    A line has two words and a number, separated by tabs, commas, semicolons or spaces; a first line
    without a number is a heading.

    Raises:
        UserError: it cannot be read, or a line is not of that form.
    """
    path = Path(path or DATA / "similarity.txt")
    pairs = []
    for number, line in _lines(path):
        separator = r"[\t,;]" if re.search(r"[\t,;]", line) else r"\s+"
        cells = [cell.strip() for cell in re.split(separator, line)]
        try:
            pairs.append(RatedPair((cells[0], cells[1]), float(cells[2])))
        except (IndexError, ValueError):
            if number > 1:
                message = f"{path}:{number}: expected two words and a number, got {line!r}"
                raise UserError(message) from None
    if len(pairs) < 2:
        raise UserError(f"{path}: the file has fewer than two pairs of words")
    return pairs


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers, without empty lines and comments."""
    try:
        text = atomic.read_bytes(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UserError(f"{path}: cannot be read: {reason}") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            yield number, line.strip()
