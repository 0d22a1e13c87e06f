"""A lab: questions whose answers anyone can check, and nobody reads in the lab's file.

The file keeps a right answer as a salted hash of its canonical form, so an answer is right if it is
the same whole numbers and texts. A number that is not whole is right within a range, of which the
file tells the width but not the place: its answers stand for the number of their interval,

    place = floor((number - start) / width)

Hashing is slow, so that a program, too, has work with trying numbers; it does not keep a secret.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from foreword.disk import stored
from foreword.errors import UserError, nearest
from foreword.settings import config
from foreword.settings.ranges import Count, Ranged

ROUNDS = 5_000  # of hashing
TYPES = {"bool": "true or false", "int": "a whole number", "text": "a text", "float": "a number"}
Width = Annotated[float, Interval(gt=0, le=1e30)]


@dataclass(frozen=True)
class WrongAnswer(Ranged):
    """A wrong answer that a teacher expects.

    Attributes:
        hint: what whoever gives it reads.
        answer: the answer, before `foreword lab make`.
        hash: its hash, after it.
    """

    hint: str
    answer: Any = None
    hash: str = ""


@dataclass(frozen=True)
class LabPart(Ranged):
    """A part of a lab: a question with one right answer.

    Attributes:
        name: what the answer is called in a file of answers.
        question: the question, in Markdown.
        answer: its type: bool, int, text, float, or a list: "[int]", "[[text]]".
        sorted: whether the order of a list matters not.
        right: the right answer, before `foreword lab make`.
        within: of numbers: how far from it an answer may be, before `foreword lab make`.
        measured: how that was found.
        hash: the hash of the right answer, after it.
        width: of numbers: the width of the range, after it.
        starts: of each number: where an interval begins, after it.
        wrong: wrong answers that get a hint.
    """

    name: str
    question: str
    answer: str
    sorted: bool = False
    right: Any = None
    within: Width | None = None
    measured: str = ""
    hash: str = ""
    width: Width | None = None
    starts: tuple[float, ...] = ()
    wrong: tuple[WrongAnswer, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.item not in TYPES or self.answer != "[" * self.depth + self.item + "]" * self.depth:
            raise ValueError(f"answer: one of {', '.join(TYPES)}, or [int], [[text]], ...")
        if self.item == "float" and self.depth > 1:
            raise ValueError("answer: numbers are float or [float]")
        if (self.item == "float") != (self.within is not None or self.width is not None):
            raise ValueError("within: of numbers, float, and of nothing else")

    @property
    def depth(self) -> int:
        """How many lists are in each other."""
        return self.answer.count("[")

    @property
    def item(self) -> str:
        """The type of the items."""
        return self.answer.strip("[]")

    @property
    def expected(self) -> str:
        """The type in words."""
        if not self.depth:
            return TYPES[self.item]
        of = {"bool": "booleans", "int": "whole numbers", "text": "texts", "float": "numbers"}
        count = f"{len(self.starts)} " * bool(self.starts)
        return f"a list of {'lists of ' * (self.depth - 1)}{count}{of[self.item]}"

    def hash_of(self, answer: Any, salt: str) -> str:
        """Return the hash of an answer.

        Raises:
            ValueError: it is not of the question's type.
        """
        plain = self._plain(answer, self.depth)
        if self.item == "float":
            numbers = plain if self.depth else [plain]
            if len(numbers) != len(self.starts):
                raise ValueError(answer)
            width = self.width or 1.0
            pairs = zip(numbers, self.starts, strict=True)
            plain = [math.floor((number - start) / width) for number, start in pairs]
        if self.sorted:
            plain = sorted(plain, key=stored.to_json)
        digest = stored.to_json([self.name, plain]).encode()
        for _ in range(ROUNDS):
            digest = blake2b(digest, key=salt.encode()[:64], digest_size=16).digest()
        return digest.hex()

    def _plain(self, value: Any, depth: int) -> Any:
        """Return an answer as it is hashed: whole numbers, also 3.0, as int."""
        if depth:
            if not isinstance(value, list | tuple):
                raise ValueError(value)
            return [self._plain(item, depth - 1) for item in value]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = {
            "bool": isinstance(value, bool),
            "text": isinstance(value, str),
            "int": is_number and math.isfinite(value) and value == math.floor(value),
            "float": is_number and math.isfinite(value),
        }[self.item]
        if not fits:
            raise ValueError(value)
        return int(value) if self.item == "int" else value

    def sealed(self, salt: str, where: str) -> LabPart:
        """Return the question with hashes in place of its answers.

        Raises:
            UserError: an answer is missing, not of the type, or both right and wrong.
        """
        if self.right is None:
            raise UserError(f"{where}.right: is needed: the right answer, {self.expected}")
        ready, known = self, list[str]()
        wrong = [(f"wrong[{n}].answer", one.answer) for n, one in enumerate(self.wrong)]
        for key, answer in [("right", self.right), *wrong]:
            try:
                if not known and self.within is not None:
                    plain = self._plain(answer, self.depth)
                    width = 2 * self.within
                    lows = [one - self.within for one in (plain if self.depth else [plain])]
                    starts = tuple(low % width for low in lows)
                    ready = replace(self, width=width, starts=starts)
                made = ready.hash_of(answer, salt)
            except (ValueError, OverflowError):  # a number may be too large to place
                raise UserError(f"{where}.{key}: {_unfit(ready, answer)}") from None
            if made in known:
                raise UserError(f"{where}.{key}: the same answer as another one")
            known.append(made)
        right, *others = known
        hints = zip(self.wrong, others, strict=True)
        return replace(
            ready,
            right=None,
            within=None,
            hash=right,
            wrong=tuple(WrongAnswer(one.hint, hash=made) for one, made in hints),
        )


@dataclass(frozen=True)
class Lab(Ranged):
    """A lab, as its file has it.

    Attributes:
        title: its title.
        text: what a student reads before the questions, in Markdown.
        parts: the questions.
        minutes: how long it takes.
        salt: makes hashes differ from those of another lab; written by `foreword lab make`.
    """

    title: str
    text: str
    parts: tuple[LabPart, ...]
    minutes: Count = 30
    salt: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [part.name for part in self.parts]
        if not names or len(set(names)) < len(names):
            raise ValueError("parts: one or more questions, each with a name of its own")

    def sealed(self) -> Lab:
        """Return the lab with hashes in place of its answers.

        Raises:
            UserError: an answer is missing or wrong; the message names it.
        """
        salt = self.salt or blake2b(self.title.encode(), digest_size=8).hexdigest()
        parts = [part.sealed(salt, f"parts[{n}]") for n, part in enumerate(self.parts)]
        return replace(self, salt=salt, parts=tuple(parts))


@dataclass(frozen=True)
class Graded:
    """What became of an answer.

    Attributes:
        part: the name of the question.
        is_right: whether it is right; None without an answer.
        hint: what the teacher wrote for this answer; "" for none.
    """

    part: str
    is_right: bool | None
    hint: str = ""


def load(name: str) -> Lab:
    """Return a shipped lab by its name, or the lab of a file.

    Raises:
        UserError: there is none, or its file is wrong; the message says where.
    """
    return config.load(Lab, config.LABS.find(name), what="a lab")


def is_made(file: Path) -> bool:
    """Return whether a file is a lab with hashes, which tells no answers."""
    try:
        return all(part.hash for part in load(str(file)).parts)
    except UserError:
        return False


def read_answers(file: Path) -> dict[str, Any]:
    """Return the answers of a TOML or JSON file, by the names of their questions.

    Raises:
        UserError: it cannot be read.
    """
    if file.suffix == ".json":
        return stored.read(file, is_foreign=True)
    return config.read_toml(file)


def grade(lab: Lab, answers: Mapping[str, Any], where: str) -> list[Graded]:
    """Return what became of each answer.

    Args:
        lab: a lab with hashes.
        answers: a student's answers.
        where: what messages call them.

    Raises:
        UserError: an answer is to no question, or not of its type.
    """
    names = [part.name for part in lab.parts]
    for name in answers:
        if name not in names:
            raise UserError(f"{where}: the lab has no part '{name}'{nearest(name, names)}")
    graded = []
    for part in lab.parts:
        if not part.hash:
            raise UserError(f"part '{part.name}' has no hash yet; 'foreword lab make' writes it")
        if part.name not in answers:
            graded.append(Graded(part.name, None))
            continue
        answer = answers[part.name]
        try:
            made = part.hash_of(answer, lab.salt)
        except (ValueError, OverflowError):  # a number may be too large to place
            raise UserError(f"{where}: {part.name}: {_unfit(part, answer)}") from None
        hint = next((one.hint for one in part.wrong if one.hash == made), "")
        graded.append(Graded(part.name, made == part.hash, hint))
    return graded


def dumps(lab: Lab) -> str:
    """Return the text of a lab's file."""
    head = {"title": lab.title, "minutes": lab.minutes, "salt": lab.salt, "text": lab.text}
    tables = [_toml(head)]
    for part in lab.parts:
        own = {
            key: value
            for key, value in config.to_table(part).items()
            if value not in ("", None, False, [], ()) and key != "wrong"
        }
        hints = "".join(
            "\n[[parts.wrong]]\n" + _toml({"hint": one.hint, "hash": one.hash})
            for one in part.wrong
        )
        tables.append(f"[[parts]]\n{_toml(own)}{hints}")
    return "\n".join(tables)


def _toml(table: Mapping[str, Any]) -> str:
    """Return keys and values; texts of several lines as they are."""
    lines = []
    for key, value in table.items():
        is_long = isinstance(value, str) and "\n" in value and "'''" not in value
        lines.append(f"{key} = " + (f"'''\n{value}'''" if is_long else config.to_toml(value)))
    return "\n".join(lines) + "\n"


def _unfit(part: LabPart, answer: Any) -> str:
    return f"expected {part.expected}, got {reprlib.repr(answer)}"
