"""Lists of questions to word vectors: analogies by section, and pairs rated by people."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from foreword.errors import UserError

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class AnalogySection:
    """Analogies of one kind.

    Attributes:
        name: as the list has it; that of grammar begins with `gram`.
        questions: a, b, c and d each: a is to b as c is to d.
    """

    name: str
    questions: tuple[tuple[str, ...], ...]

    @property
    def is_grammar(self) -> bool:
        """Whether it asks for forms of words and not for what they mean."""
        return self.name.startswith("gram")


@dataclass(frozen=True)
class RatedPair:
    """Two words, and how near people find them."""

    words: tuple[str, str]
    rating: float


def read_analogies(path: str | Path | None) -> list[AnalogySection]:
    """The sections of a list like `questions-words.txt`; a small one of ours without a path.

    Raises:
        UserError: it cannot be read, or a line has not four words.
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
        raise UserError(f"{path}: no analogies in it")
    return [AnalogySection(name, tuple(questions)) for name, questions in sections if questions]


def read_pairs(path: str | Path | None) -> list[RatedPair]:
    """The pairs of a list like `wordsim353.txt`; a small one of ours without a path.

    Two words and a number a line, between tabs, commas or spaces; a first line without a number is
    a heading.

    Raises:
        UserError: it cannot be read, or a line is not of that form.
    """
    path = Path(path or DATA / "similarity.txt")
    pairs = []
    for number, line in _lines(path):
        between = r"[\t,;]" if re.search(r"[\t,;]", line) else r"\s+"
        cells = [cell.strip() for cell in re.split(between, line)]
        try:
            pairs.append(RatedPair((cells[0], cells[1]), float(cells[2])))
        except (IndexError, ValueError):
            if number > 1:
                message = f"{path}:{number}: expected two words and a number, got {line!r}"
                raise UserError(message) from None
    if len(pairs) < 2:
        raise UserError(f"{path}: no pairs of words in it")
    return pairs


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, with their numbers."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UserError(f"{path}: cannot be read: {reason}") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            yield number, line.strip()
