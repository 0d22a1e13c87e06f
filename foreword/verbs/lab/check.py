"""`foreword lab check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.results import Part, Remark, Result, ResultTable
from foreword.errors import UserError
from foreword.verbs._arguments import paths
from foreword.verbs._contract import ARGUMENT, Flag, PathName
from foreword.verbs.lab._contract import LabVerb

if TYPE_CHECKING:
    from foreword.labs.lab import Graded


@dataclass(frozen=True, repr=False)
class Grades(Result):
    """Which answers are right.

    Attributes:
        lab: the lab.
        files: what became of each answer, by the name of the file of answers.
        wrong: why a file of several could not be read, by its name.
    """

    lab: str
    files: Mapping[str, Sequence[Graded]]
    wrong: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """The exit status: 2 if a file could not be read, 0 if all answers are right, else 1."""
        if self.wrong:
            return 2
        return 0 if all(one.is_right for file in self.files.values() for one in file) else 1

    def tables(self) -> Sequence[Part]:
        """Return a row for each part of one file; of several files a row for each."""
        said = {True: "right", False: "wrong", None: "no answer"}
        unread = [Remark(why) for why in self.wrong.values()]
        if len(self.files) + len(self.wrong) > 1:
            rows = [
                {"file": name, "right": _right(file)}
                | {one.part: said[one.is_right] for one in file}
                for name, file in self.files.items()
            ]
            return [*([ResultTable(rows)] if rows else []), *unread]
        ((_, file),) = self.files.items()
        rows = [{"part": one.part, "answer": said[one.is_right]} for one in file]
        hints = [Remark(f"{one.part}: {one.hint}") for one in file if one.hint]
        return [ResultTable(rows), *hints, Remark(f"{_right(file)} of {len(file)} right")]

    def data(self) -> dict[str, Any]:
        """Return what became of each answer."""
        files = [
            {
                "file": name,
                "right": _right(file),
                "parts": [
                    {"part": one.part, "right": one.is_right, "hint": one.hint} for one in file
                ],
            }
            for name, file in self.files.items()
        ]
        unread = [{"file": name, "error": why} for name, why in self.wrong.items()]
        return {"lab": self.lab, "files": [*files, *unread]}


def _right(file: Sequence[Graded]) -> int:
    return sum(one.is_right is True for one in file)


@dataclass(frozen=True)
class Check(LabVerb[Grades]):
    """Say which answers to a lab's questions are right.

        foreword.lab.check("bpe", "answers.toml")

    The lab's file holds no answers but their hashes. The exit status is 0 if all are right, 1 if
    not, 2 if a file cannot be read; of several files the others are checked all the same.

    Attributes:
        lab: the name of a lab (lab show lists them), or its .toml file.
        answers: .toml or .json files with an answer for each part, by its name; in Python also a
            table of them.
    """

    lab: Annotated[PathName, ARGUMENT]
    answers: Annotated[
        PathName | Sequence[PathName] | Mapping[str, Any],
        Flag(is_argument=True, metavar="ANSWERS...", takes=list[str]),
    ]

    def __call__(self) -> Grades:
        from foreword.labs import lab as labs

        lab = labs.load(fspath(self.lab))
        if isinstance(self.answers, Mapping):
            tables: dict[str, Path | dict[str, Any]] = {"answers": dict(self.answers)}
        else:
            tables = {file: Path(file) for file in paths(self.answers)}
        graded: dict[str, Sequence[Graded]] = {}
        wrong: dict[str, str] = {}
        for name, given in tables.items():
            try:
                table = labs.read_answers(given) if isinstance(given, Path) else given
                graded[name] = labs.grade(lab, table, name)
            except UserError as error:
                if len(tables) == 1:
                    raise
                wrong[name] = str(error)
        return Grades(fspath(self.lab), graded, wrong)
